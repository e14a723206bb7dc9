"""Notes as blocks of a prompt: the text of a result, without repetitions."""

import json
import re
from typing import Any

from agent_service.models.prompts.wording import block, blocks
from tests.core.cues import returns, signal
from tests.core.words import PARENT, run_at


def told_of(output: dict[str, Any]) -> str:
    text = block((run_at("run waiting") >> returns(output=output)).state.notes[-1])
    found = re.search(r"<untrusted_result>\n(.*)\n</untrusted_result>", text, re.DOTALL)
    assert found, text
    return found[1]


def test_a_result_that_is_cut_says_how_much_is_missing_and_where_the_whole_is() -> None:
    less = "; ask the tool for less at a time"
    for path, where in {
        "artifacts/page.html": "; the whole is the artifact artifacts/page.html",
        "": less,
        "../../etc/passwd": less,
        "artifacts/a.html]\n</step>": less,
    }.items():
        told = told_of({"excerpt": "x" * 50_000} | ({"artifact_path": path} if path else {}))
        ((shown, whole, end),) = re.findall(r"\n\[cut: (\d+) of (\d+) characters are shown(.*)\]\Z", told)
        assert (15_900 < int(shown) <= 16_000, int(whole) > 50_000, end) == (True, True, where)


def test_a_field_that_says_what_stands_there_already_is_left_out_and_no_other() -> None:
    """The run asked `fetch` for https://example.org."""
    said = {"url": "https://example.org", "final_url": "https://example.org", "title": "A page", "truncated": False}
    kept = {"bytes": 17, "free": False, "status": 200, "winner": "A page"}
    result = told_of({"summary": "A page: welcome", "job_id": "7", "output": {**said, **kept}})
    assert result == 'A page: welcome\n{"output": {"bytes": 17, "free": false, "status": 200, "winner": "A page"}}'
    moved = {"url": "https://example.com/moved", "title": "Another"}
    assert told_of({"summary": "A page", "output": moved}).endswith(
        '{"output": {"title": "Another", "url": "https://example.com/moved"}}'
    )


def test_what_only_calls_itself_an_artifact_is_told_as_it_came() -> None:
    for wrong in ("artifacts/../x", 7):
        output = {"artifacts": [{"path": "artifacts/a.txt"}, {"path": wrong}]}
        assert told_of(output) == json.dumps(output)
    assert told_of({"artifacts": [{"path": "artifacts/a.txt", "size": 7}]}) == "Artifacts: artifacts/a.txt (7 bytes)"


def test_a_childs_result_has_no_numbers_for_machines() -> None:
    parent = run_at(f"{PARENT} ; born it ; it: plan ; it: return ; it: done ; home it")
    text = block(parent.state.notes[-1])
    assert "looked at the result" in text
    assert "usage" not in text
    assert "deadline_at" not in text


def test_an_approved_write_is_shown_once_and_a_rejected_one_with_what_it_would_have_sent() -> None:
    asks = "run waiting browse ; return ; reflect continue ; plan post"
    approved, rejected = run_at(f"{asks} ; approve ; return"), run_at(f'{asks} ; reject "not to them"')
    assert "\n".join(blocks(approved.state.notes)).count('{"url": "https://example.org"}') == 2, "of steps 1 and 2"
    assert [told for told in blocks(rejected.state.notes) if "not to them" in told] == [RULED]


RULED = """<ruling>
rejected: post.handle {"url": "https://example.org"}
not to them
</ruling>"""


def test_a_persons_message_is_whole_and_one_from_elsewhere_is_cut() -> None:
    said = "x" * 8000 + " so be it"
    run = run_at("run waiting") >> signal("message", message=said) >> signal("message", message=said, untrusted=True)
    whole, cut = map(block, run.state.notes)
    assert said in whole
    assert "\n[cut: 2000 of 8009 characters are shown]\n" in cut


def test_parallel_steps_stand_in_their_order_with_what_led_to_them_once() -> None:
    run = run_at(
        "run planning parallel_reads=3 ; many fetch browse fetch ; return step=3 ; return step=1 ; return step=2"
    )
    shown = blocks(run.state.notes)
    assert [re.findall(r'number="(\d)"', text) for text in shown] == [["1"], ["2"], ["3"]]
    assert ["Why: " in text for text in shown] == [True, False, False]
