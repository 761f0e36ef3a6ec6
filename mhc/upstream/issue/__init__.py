"""The text of an issue, and the issues that are known upstream (`known_issues.json`)."""
