"""Why a finding is not exported."""


class ExportError(ValueError):
    """No program is made of a finding, or the one made does not show it; says what was seen."""
