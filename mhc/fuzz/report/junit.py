"""Write the campaign as JUnit's XML, for CI."""

from xml.etree import ElementTree as ET

from mhc.fuzz.report.stored_run import Run, StoredFinding
from mhc.fuzz.report.words import bounded, plural
from mhc.terminal import safe


def junit(run: Run) -> str:
    """Return a test for each implementation, which passes if something was judged, and a failing one for each fingerprint.

    An output that was not always returned, or never judged, is a test of its own, which is skipped. So is a pair that was
    never compared, the fingerprint of a known issue, and an implementation of which nothing was judged. A fault of the
    harness is an error of its own.
    """
    suite = ET.Element("testsuite", name="mhc.fuzz", time=f"{run.seconds:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name in ("command", "seed", "device", "budget"):
        ET.SubElement(properties, "property", name=name, value=bounded(str(run.meta.get(name, ""))))
    for fault in run.faults:
        test = _test(suite, f"mhc.fuzz.{fault.implementation}".rstrip("."), "harness")
        ET.SubElement(test, "error", message=_line(fault.message)).text = bounded(fault.whole)
    for name in run.names:
        _implementation(suite, run, name)
    for name, reason in run.unavailable.items():
        test = _test(suite, f"mhc.fuzz.{name}", "was judged")
        ET.SubElement(test, "skipped", message=_line(reason))
    for pair in run.pairs:
        test = _test(suite, f"mhc.fuzz.{pair.name}", f"was compared with {pair.against}")
        if not pair.cases:
            ET.SubElement(test, "skipped", message=_line(str(pair)))
        ET.SubElement(test, "system-out").text = bounded(str(pair))
    for found in run.findings:
        _finding(suite, found)
    for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(kind, str(len(list(suite.iter(tag)))))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _implementation(suite: ET.Element, run: Run, name: str) -> None:
    checked, refused = run.count(name, "checked"), run.count(name, "refused")
    test = _test(suite, f"mhc.fuzz.{name}", "was judged", time=sum(run.spent(name).values()))
    if name in run.empty:
        ET.SubElement(test, "skipped", message=_line(run.gaps[name]))
    restarts = "".join(f"\nrestarted {n} times: {reason}" for owner, reason, n in run.restarts if owner == name)
    ET.SubElement(test, "system-out").text = bounded(f"{checked} checked, {refused} refused{restarts}")
    for one in run.unjudged(name):
        test = _test(suite, f"mhc.fuzz.{name}", f"{one.subject} was judged")
        properties = ET.SubElement(test, "properties")
        for key, value in (("not returned", one.missing), ("cases", one.cases)):
            ET.SubElement(properties, "property", name=key, value=str(value))
        ET.SubElement(test, "skipped", message=_line(f"{one.subject}: {one.why}"))


def _finding(suite: ET.Element, found: StoredFinding) -> None:
    test = _test(suite, f"mhc.fuzz.{found.implementation}", f"{found.id} {found.title}")
    text = f"{found.message}\n{found.shape}\n{found.stability}, seen {plural(found.seen, 'time')}\n{found.replay}"
    text += f"\nfixture {found.fixture}" if found.fixture else ""
    if found.known is not None:
        ET.SubElement(test, "skipped", message=_line(found.known)).text = safe(text)
    else:
        ET.SubElement(test, "failure", message=_line(found.message), type="finding").text = safe(text)


def _test(suite: ET.Element, owner: str, name: str, time: float = 0.0) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_line(owner), name=_line(name), time=f"{time:.3f}")


def _line(text: str) -> str:
    return " ".join(bounded(text, 500).split())
