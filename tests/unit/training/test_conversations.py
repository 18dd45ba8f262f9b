"""What the model learns from: the same for the same seed, in the template's words, and with the tools' own results."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from tests.own_app import app_of
from training import held_out, own_tools, small_talk
from training.__main__ import main
from training.chat import TEMPLATE, Chat
from training.conversations import FAR, KINDS
from training.corpus import ANSWER, Row, batched, encode, pool
from training.draw import Draw, is_held_out
from training.engine import TOOLS, Consent
from training.fact import KINDS as FACTS
from training.fact import fact, question, statement
from training.machine import Need
from training.new_tools import HELD_OUT_NOUNS, offer, some_noun
from training.tokenizer import SPECIAL, Vocabulary, learned_merges

from shepherd.core import Message, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects.render.template import Template
from shepherd.memory.recall.recall import OPENING as MEMORY


def test_a_seed_makes_the_same_on_every_machine_and_in_every_process() -> None:
    draw, said = Draw(7), list[str]()
    for _ in range(200):
        told, tool = fact(draw), offer(draw)
        said += [statement(draw, told), question(draw, told), *small_talk.remark(draw)]
        said.append(json.dumps([tool.spec, *tool.ask(draw)]))
    assert hashlib.sha256("\n".join(said).encode()).hexdigest()[:16] == "ed8ccb59dc794728"


def test_each_fifth_wording_is_only_for_the_evaluation() -> None:
    table = [str(at) for at in range(12)]
    trained, evaluated = ({draw.wording(table) for _ in range(500)} for draw in (Draw(1), Draw(1, held_out=True)))
    assert (trained, evaluated) == ({*table} - {"4", "9"}, {"4", "9"})
    assert [at for at in range(4) if is_held_out(at, 4)] == []  # a small table is drawn whole


def test_questions_of_the_evaluation_are_none_of_trainings() -> None:
    for kind in FACTS:
        trained = {question for _ in range(300) for question in fact(Draw(f"a{_}"), kind).questions[:4]}
        asked = fact(Draw("b", held_out=True), kind).questions[0]
        assert asked not in trained


def test_tools_of_the_evaluation_are_about_nouns_that_training_never_has() -> None:
    trained, evaluated = ({some_noun(draw) for _ in range(3_000)} for draw in (Draw(3), Draw(3, held_out=True)))
    assert trained.isdisjoint(HELD_OUT_NOUNS)
    assert evaluated == {*HELD_OUT_NOUNS}


def engine_text(chat: Chat) -> str:
    """As Shepherd renders it for a model."""
    messages = [Message.system(chat.system)] if chat.system else []
    ids = iter(range(10**6))
    waiting: list[str] = []
    for each in chat.messages:
        match each.role:
            case "assistant" if each.calls:
                waiting = [f"call-{next(ids)}" for _ in each.calls]
                made = [
                    ToolCall(id, call.name, json.dumps(call.arguments, ensure_ascii=False))
                    for id, call in zip(waiting, each.calls, strict=True)
                ]
                messages.append(Message("assistant", tuple(made)))
            case "tool":
                messages.append(Message("tool", (ToolResult(waiting.pop(0), (Text(each.text),)),)))
            case "assistant":
                messages.append(Message("assistant", (Text(each.text),)))
            case _:
                messages.append(Message("user", (Text(each.text),)))
    tools = [
        ToolSpec(spec["function"]["name"], spec["function"]["description"], spec["function"]["parameters"])
        for spec in chat.tools
    ]
    template = Template(TEMPLATE.read_text("utf-8"))
    return "".join(piece.text for piece in template.render(messages, tools=tools, add_generation_prompt=False))


@pytest.mark.parametrize("kind", [each for each, _ in KINDS if each.__name__ != "new"])
def test_a_conversation_reads_as_the_template_writes_it(kind: held_out.Maker) -> None:
    draw = Draw(f"text of {kind.__name__}")
    for _ in range(3):
        made = kind(draw)
        assert made.text == engine_text(made)


@pytest.mark.parametrize("name", [*held_out.TASKS, *held_out.HOLES])
def test_a_case_ends_with_the_models_answer_and_is_always_the_same(name: str) -> None:
    one, same = held_out.cases(name, 2), held_out.cases(name, 2)
    assert [each.text for each in one] == [each.text for each in same]
    for each in one:
        assert each.prompt() + each.answer() + "\n" == each.text
        assert each.prompt().endswith("<|im_start|>assistant\n")


async def test_results_have_the_forms_of_the_tools_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    enabled = [*TOOLS, "file_exists"]
    box = app_of(tmp_path, f"[tools]\nenabled = {json.dumps(enabled)}").tools.box(n_ctx=8192, person=Consent())

    async def run(name: str, **arguments: object) -> str:
        ran = await box.run(ToolCall("x", name, json.dumps(arguments)))
        return "".join(part.text for part in ran.result.parts if isinstance(part, Text))

    wrote = await run("write_file", path="a.txt", content="hi")
    assert list(json.loads(wrote)) == ["success", "path", "bytes", "action"]
    assert list(json.loads(await run("edit_file", path="a.txt", old="hi", new="ho"))) == [
        "success",
        "path",
        "replacements",
        "bytes",
    ]
    assert await run("read_file", path="a.txt") == "ho"
    assert await run("search_files", pattern="ho", path="a.txt") == "a.txt:1:ho"
    assert (await run("search_files", pattern="zz", path="a.txt")).startswith('No line matches "zz" in 1 file')
    assert await run("file_exists", path="a.txt") == '{"exists": true, "type": "file"}'
    assert await run("delete_file", path="a.txt") == '{"success": true, "path": "a.txt"}'
    assert (await run("read_file", path="a.txt")).startswith(
        'Error: there is no "a.txt". The current folder, called ".", holds: '
    )
    assert await run("execute_command", command="date") == own_tools.DECLINED.format("execute_command")


def test_the_tools_of_training_are_those_of_the_registry(tmp_path: Path) -> None:
    registry = {tool.name: tool.spec for tool in app_of(tmp_path).tools.registry.tools()}
    for name, spec in own_tools.specs().items():
        assert spec["function"]["description"] == registry[name].description
        assert spec["function"]["parameters"] == registry[name].parameters
    for name in own_tools.REQUESTS:
        draw = Draw(name)
        for _ in range(20):
            asked = own_tools.request(draw, name)
            for call, _ in (each for step in asked.steps for each in step):
                known = own_tools.specs()[call.name]["function"]["parameters"]
                assert set(call.arguments) <= set(known["properties"])
                assert set(known.get("required", ())) <= set(call.arguments)


def test_what_the_memory_quotes_is_data() -> None:
    draw = Draw("data")
    for case in (held_out.remembered(draw) for _ in range(40)):
        assert MEMORY in case.messages[-2].text
        assert not case.messages[-1].calls


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.learned(small_talk.chat(Draw(at)).text for at in range(40))


def test_merges_are_those_of_the_most_frequent_pairs() -> None:
    assert learned_merges({"aab": 3, "ab": 2, "cd": 1}, 2) == [("a", "b"), ("a", "ab")]
    assert learned_merges({"ab": 1, "cd": 1}, 9) == [("a", "b"), ("c", "d")]


def test_text_comes_back_from_its_tokens(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v.json")
    encoder = Vocabulary.read(tmp_path / "v.json").encoder()
    assert len(vocabulary.tokens) == len({*vocabulary.tokens}) == 2048
    for text in ('Grüße, 42! {"a": [1]}', "你好\n\n  x", *SPECIAL):
        assert encoder.decode(encoder.encode(text).ids, skip_special_tokens=False) == text
    assert [len(encoder.encode(each).ids) for each in SPECIAL] == [1] * len(SPECIAL)


def test_only_answers_have_the_full_weight_and_a_hole_is_skipped(vocabulary: Vocabulary) -> None:
    encoder = vocabulary.encoder()
    case = held_out.after_hole(Draw(5), 1_000)
    row = encode(case, encoder, Draw(1), start=0)
    steps = [b - a for a, b in zip(row.positions, row.positions[1:], strict=False)]
    assert sorted({*steps}) == [1, 1_001]
    said = encoder.decode([id for id, weight in zip(row.ids, row.weights, strict=True) if weight == ANSWER])
    assert said == encoder.decode(encoder.encode("".join(p.text for p in case.pieces() if p.is_answer)).ids)


def test_what_has_a_hole_ends_within_the_positions_of_the_network(vocabulary: Vocabulary) -> None:
    encoder = vocabulary.encoder()
    rows = (encode(held_out.after_hole(Draw(at), jump), encoder, Draw(at)) for jump in (1_000, FAR) for at in range(40))
    ends = [row.positions[-1] for row in rows]
    assert FAR - 2_000 < max(ends) < FAR + 6_000  # `Shape.n_positions`, in a module that needs PyTorch


def test_a_pool_is_made_again_from_its_number(vocabulary: Vocabulary) -> None:
    encoder = vocabulary.encoder()
    one, same, other = (pool(1, 0, number, 0.5, encoder, n=12) for number in (4, 4, 5))
    assert one == same != other


def test_a_batch_has_no_more_than_its_tokens() -> None:
    rows = [Row([0] * n, [0] * n, [0.0] * n) for n in (10, 1_000, 1_000, 1_100, 3_500)]
    assert [len(each.rows) for each in batched(rows)] == [3, 1, 1]
    assert [each.n_tokens for each in batched(rows)] == [3_000, 1_100, 3_500]


def test_a_machine_with_too_little_is_told_so_before_the_run(tmp_path: Path) -> None:
    need = Need.of(7_000_000, 2)
    assert need.lacking(tmp_path, memory_bytes=1 << 35, disk_bytes=1 << 35) == []
    memory, disk = need.lacking(tmp_path, memory_bytes=1 << 20, disk_bytes=1 << 20)
    assert memory.startswith(
        "training needs 9.1 GB of memory, and 0.0 GB are free; end other programs, or train in one"
    )
    assert disk.startswith("training writes 0.4 GB to ")


def test_what_is_missing_is_said_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("training.network", "training.train"):
        monkeypatch.delitem(sys.modules, each, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    monkeypatch.setattr("os.nice", lambda n: n)
    assert main(["--folder", str(tmp_path)]) == 1
    assert "torch is not installed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
