"""The pictures of a finding: its map of errors, the tiles of its schedule, and the steps that made its case small."""

import re
from dataclasses import replace

import pytest
import torch

from mhc import default_case
from mhc.fuzz.findings.finding import Reduction, Step, from_document
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.report.error_picture import CLASSES, WORDS, draw, error_pictures, tile_edges
from mhc.fuzz.report.pictures import steps
from mhc.oracles.error_map import CLASS, NOT_JUDGED, SCALE, ErrorMap, error_map
from tests.support.report_stores import document, located

PRINT = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")
CASE = default_case(B=2, S=6, n=2, D=40)  # dx is [B, S, n, D]: 24 rows, 40 columns


def mapped(*shape: int) -> ErrorMap:
    return error_map(torch.full(shape, 5.0, dtype=torch.float64))


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"BLOCK_D": 16}, (False, [16, 32])),
        ({"backward_block_d": 16}, (False, [16, 32])),
        ({"forward_block_d": 16}, None),  # dx is a gradient
        ({"backward_psi_d": 16}, None),  # of another stage
        ({"BLOCK_S": 4}, (True, [8, 12, 20])),  # rows of 2 streams; a batch begins at 12
        ({"backward_tokens": 5}, (True, [10, 20])),  # B and S together
        ({"BLOCK_SIZE_COLUMNS": 32}, (False, [32])),
        ({"BLOCK_ROWS": 10}, (True, [10, 20])),
        ({"BLOCK_M": 10}, None),  # M is a symbol of other tensors
        ({"BLOCK_N": 1}, (True, list(range(1, 24)))),  # n is a symbol of dx
        ({"BLOCK_B": 1}, (True, [12])),
        ({"BLOCK_D": True}, None),
        ({"BLOCK_D": "16"}, None),
        ({"BLOCK_D": 0}, None),
        ({"BLOCK": 16}, None),
        ({"warps": 4}, None),
    ],
)
def test_tiles_of_the_schedule_are_matched_to_axes(entry: dict[str, int], wanted: tuple[bool, list[int]] | None) -> None:
    case = replace(CASE, schedules={"mine": entry, "other": {"BLOCK_D": 8}})
    found = tile_edges(case, mapped(2, 6, 2, 40), PRINT)
    assert [(one.of_rows, list(one.starts)) for one in found] == ([] if wanted is None else [wanted])
    assert tile_edges(case, mapped(3, 3), PRINT) == [], "of a slice of the tensor nothing is known"
    assert tile_edges(case, mapped(2, 6, 2, 40), replace(PRINT, subject="process")) == []


def test_tiles_of_a_store_that_no_campaign_wrote_cost_nothing() -> None:
    sizes = CASE.table.sizes({"B": 2**17, "S": 1, "n": 2, "D": 2**17})
    errors = ErrorMap(
        shape=(2**17, 1, 2, 2**17), cells=("." * 64,) * 64, wrong=1, judged=1, rows=(0, 2**18 - 1), columns=(0, 1)
    )
    case = replace(CASE, sizes=sizes, schedules={"mine": {"BLOCK_S": 2**60, "BLOCK_D": 1, "ROWS": 1, "tokens": 3}})
    assert [list(one.starts) for one in tile_edges(case, errors, PRINT)] == [[]] * 4


def test_every_cell_is_drawn_once_with_its_class() -> None:
    errors = replace(mapped(3, 5), cells=("..1NN", "--1?5", "23344"))
    picture = draw("dx", errors)
    cells = {one.class_: one for one in picture.paths if one.class_ in CLASSES.values()}
    for letter in (*SCALE, CLASS, NOT_JUDGED):
        many = "".join(errors.cells).count(letter)
        assert cells[CLASSES[letter]].title.endswith(f"{many} cell{'s' if many > 1 else ''}")
        wide = sum(float(one) - 0.4 for one in re.findall(r"h(\d[\d.]*)v", cells[CLASSES[letter]].d))
        assert wide == pytest.approx(18 * many, abs=0.1), letter
    assert set(WORDS) == set(CLASSES) == {*SCALE, CLASS, NOT_JUDGED}
    assert sum(one.class_ == "stroke" for one in picture.paths) == 1, "not by colour alone"
    assert [label.text for label in picture.labels] == ["0", "0", "2", "4"]


def test_a_map_fits_a_telephone_and_its_tiles_are_drawn_where_there_is_room() -> None:
    large = replace(
        CASE, sizes=CASE.table.sizes({"B": 2, "S": 512, "n": 2, "D": 4096}), schedules={"mine": {"BLOCK_D": 512}}
    )
    errors = mapped(2, 512, 2, 4096)
    picture = draw("dx", errors, tile_edges(large, errors, PRINT))
    assert picture.width <= 350
    (tiles,) = (one for one in picture.paths if one.class_ == "tile")
    assert tiles.d.count("M") == 7
    fine = replace(large, schedules={"mine": {"BLOCK_D": 32, "BLOCK_S": 1}})
    assert "tile" not in {one.class_ for one in draw("dx", errors, tile_edges(fine, errors, PRINT)).paths}


def test_both_cases_are_shown_if_they_are_worth_it() -> None:
    _, found = document("tilelang-c", "dx", "value", "dx[0] = 1", drawn=located())
    drawn, few = from_document(found), mapped(1, 1, 1, 3)
    (only,) = error_pictures(replace(drawn, errors=few))
    assert only.title.startswith("As it was drawn: B = 2, S = 24, n = 2, D = 72")
    assert only.summary == "769 of 6,656 judged elements wrong: rows 0 to 95, columns 3 to 71"
    assert only.schedule.endswith("edges of tiles: block_tokens on rows, backward_block_D on columns")
    assert sum(only.cells.values()) == len(only.text.replace("\n", "")) == 48 * 36
    both = error_pictures(replace(drawn, errors=mapped(1, 1, 1, 8)))
    assert [one.title.partition(":")[0] for one in both] == ["As it was drawn", "Minimal"]
    assert error_pictures(replace(drawn, drawn=None)) == []
    (raw,) = error_pictures(replace(drawn, drawn=None, errors=few))
    assert "none was pinned" in raw.schedule


def test_the_strip_has_a_mark_for_each_step() -> None:
    made = Reduction(elements_before=100, elements=3, checks=30, seconds=1.0, reproduced=3, runs=3)
    assert steps(made) is None
    listed = [(2, 100), (9, 3), (12, 3)]
    taken = tuple(Step(checks=at, elements=left, sizes={"D": left}) for at, left in listed)
    picture = steps(replace(made, steps=taken))
    assert picture is not None
    assert [one.title for one in picture.boxes] == [
        "check 2: 100 elements; D = 100",
        "check 9: 3 elements; D = 3",
        "check 12: 3 elements; simpler values, dtype or layout",
    ]
    assert [one.class_ for one in picture.boxes] == ["c0", "c0", "rest"]
    assert picture.boxes[0].y < picture.boxes[1].y == picture.boxes[2].y
    assert picture.boxes[0].x < picture.boxes[1].x < picture.boxes[2].x
    assert steps(replace(made, steps=taken[1:])) is None, "nothing became smaller"
