"""The GitHub Action and the jobs for GitLab: their commands find a planted bug, report it, and resume its run."""

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.ci_jobs import ACTION, bash, document, run_action
from tests.support.helpers import ROOT

EXAMPLES = ROOT / "docs" / "examples"
ID = "529f5731"  # of the fingerprint of the planted bug


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project with a kernel whose mean is over the padded row."""
    text = (EXAMPLES / "rms_norm.py").read_text(encoding="utf-8")
    assert text.count(" / D ") == 1
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "norm.py").write_text(text.replace(" / D ", " / BLOCK "), encoding="utf-8")
    return tmp_path


def legs(text: str) -> int:
    """How many legs the run of a summary has."""
    (found,) = re.findall(r"^Legs: (.*)$", text, flags=re.MULTILINE) or [""]
    return len(found.split(";")) if found else 1


@pytest.mark.slow
def test_the_action_finds_a_bug_reports_it_and_resumes_its_run(checkout: Path) -> None:
    run = checkout / "project" / "fuzz_reports" / "ci"
    chosen = {"folder": "project", "implementations": "norm.py:IMPL\n", "minutes": "0.4", "seed": "1", "device": "cpu"}
    first = run_action(checkout, install="python -c 'import mhc.fuzz'", cache_key="night", **chosen)
    assert first.statuses == {"Install": 0, "Campaign": 1, "Report": 1}, first.output
    assert list(first.used) == ["Set up Python", "Restore the run", "Save the run", "Keep the reports"]
    assert first.used["Keep the reports"]["path"] == "project/fuzz_reports/ci"
    assert f"**{ID}** mine: y: value (bound)" in first.summary
    failing = [one.get("name") for one in ET.parse(run / "junit.xml").iter("testcase") if one.find("failure") is not None]
    assert f"{ID} mine: y: value (bound)" in failing
    (error,) = [line for line in first.output["Report"].splitlines() if line.startswith("::") and "(bound)" in line]
    line = (
        (checkout / "project" / "norm.py")
        .read_text(encoding="utf-8")
        .splitlines()
        .index('IMPL = Implementation(name="mine", operator=rms_norm, forward=forward, env={"TRITON_INTERPRET": "1"},')
    )
    assert error.startswith(f"::error file=project/norm.py,line={line + 1},title=mhc-fuzz%3A mine%3A y%3A value (bound)::y[")
    assert f"%0Apython -m mhc.fuzz replay fuzz_reports/ci/{ID}.json --impl norm.py:IMPL" in error
    assert legs(first.summary) == 1

    again = run_action(checkout, install="true", **{**chosen, "minutes": "0.05", "python": ""})
    assert again.statuses == {"Install": 0, "Campaign": 1, "Report": 1}, again.output
    assert again.skipped == ["Set up Python", "Restore the run", "Save the run"]
    assert legs(again.summary) == 2


def test_steps_behind_a_failed_installation_are_skipped(checkout: Path) -> None:
    ran = run_action(checkout, install="exit 3")
    assert ran.statuses == {"Install": 3}
    assert "Campaign" in ran.skipped
    assert "Report" in ran.skipped


def test_the_action_installs_this_checkout_and_caches_what_it_runs() -> None:
    action = document(ACTION)
    (where,) = re.findall(r'"\$GITHUB_ACTION_PATH/(.*)"', action["inputs"]["install"]["default"])
    assert (ACTION.parent / where).resolve() == ROOT
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    restore, save = steps["Restore the run"]["with"], steps["Save the run"]["with"]
    assert (restore["path"], restore["key"]) == (save["path"], save["key"])
    assert save["key"].startswith(restore["restore-keys"])
    for name, step in steps.items():  # what an input holds is no code, but for the commands that install
        assert name == "Install" or "${{" not in step.get("run", ""), name


def test_the_page_has_each_input_of_the_action() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(rows))) == sorted(document(ACTION)["inputs"])


@pytest.mark.parametrize("path", [EXAMPLES / "github-ci.yml", ROOT / ".github" / "workflows" / "nightly.yml"])
def test_workflows_give_the_action_inputs_that_it_has(path: Path) -> None:
    inputs = document(ACTION)["inputs"]
    steps = [step for job in document(path)["jobs"].values() for step in job["steps"]]
    used = [step for step in steps if "/actions/mhc-fuzz" in step.get("uses", "")]
    assert used
    for step in used:
        assert step["with"].keys() <= inputs.keys()
        place = step["uses"].partition("@")[0]
        assert ACTION.parent == ROOT / re.sub(r"^(\.|OWNER/mhc-fuzz)/", "", place)


@pytest.mark.slow
def test_the_jobs_for_gitlab_find_the_bug_and_resume(checkout: Path) -> None:
    jobs = document(EXAMPLES / "gitlab-ci.yml")
    base, night = jobs[".mhc-fuzz"], jobs["mhc-fuzz-night"]
    assert night["extends"] == jobs["mhc-fuzz"]["extends"] == ".mhc-fuzz"
    (folder,) = base["artifacts"]["paths"]
    assert [folder] == night["cache"]["paths"] == [base["variables"]["RUN"]]
    project = checkout / "project"
    for leg in (1, 2):
        variables = {**base["variables"], **night["variables"], "MINUTES": "0.3"}
        status, output = bash("\n".join(base["script"]), project, variables)
        assert status == 1, output
        assert legs(output) == leg
        shutil.copytree(project / folder, checkout / f"cache-{leg}")
        shutil.rmtree(project / folder)
        shutil.copytree(checkout / f"cache-{leg}", project / folder)
    failed = ET.parse(project / base["artifacts"]["reports"]["junit"]).iter("testcase")
    assert f"{ID} mine: y: value (bound)" in [one.get("name") for one in failed if one.find("failure") is not None]
