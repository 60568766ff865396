from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateward.errors import UserError
from stateward.evaluation.imports import export_csv, export_jsonl, import_results
from stateward.evaluation.interchange import from_decode_result, to_decode_result
from stateward.evaluation.metrics import mean_figure, task_table
from stateward.evaluation.run import load_run
from stateward.outcome import EpisodeRecord, Outcome, Trial
from stateward.store import Journal, read_records


def public_rows(trials: int = 10) -> list[dict[str, Any]]:
    """Rows as the public framework writes them: passes, failures, broken checks, endpoint errors, missing results."""
    rng = random.Random(5)
    rows = []
    for trial in range(trials):
        for task, rate in enumerate((0.95, 0.5, 0.1, 1.0, 0.7)):
            row: dict[str, Any] = {
                "uid": f"crm.py:test_{task}",
                "messages": [
                    {"T": "Text", "role": "system", "content": "Be kind.", "metadata": {}},
                    {"T": "Text", "role": "user", "content": "Close deal 3", "metadata": {}},
                    {"T": "Text", "role": "assistant", "content": "I look first.", "metadata": {"tag": "think"}},
                    {
                        "T": "ParallelToolCall",
                        "metadata": {},
                        "tool_calls": [
                            {"T": "ToolCall", "name": "get", "arguments": {"id": 3}, "id": "a", "metadata": {}},
                            {
                                "T": "ToolCall",
                                "name": "get",
                                "arguments": {},
                                "id": "b",
                                "metadata": {"error": "id is missing"},
                            },
                        ],
                    },
                    {"T": "ToolResponse", "name": "get", "content": "open", "id": "a", "metadata": {}},
                    {"T": "ToolResponse", "name": "get", "content": "Error", "id": "b", "metadata": {}},
                    {"T": "Text", "role": "assistant", "content": "Closed. <DONE>", "metadata": {}},
                ],
                "test_result": {"result": rng.random() < rate, "reward": 0.0, "is_system_error": False, "tb": ""},
                "test_context": None,
                "usage": [
                    {
                        "input_tokens": 100,
                        "input_tokens_details": {"cached_tokens": 40},
                        "output_tokens": 30 + task,
                        "output_tokens_details": {"reasoning_tokens": 20},
                        "total_tokens": None,
                    }
                ]
                * 2,
                "metadata": {"execution_time": 2.5 + task, "trial": trial},
                "is_system_error": False,
                "finish_reason": "done",
            }
            result = row["test_result"]
            result["reward"] = float(result["result"])
            if not result["result"]:
                result |= {"tb": "AssertionError: open", "lineno": 12, "line_content": "assert stage == 'won'"}
            fate = rng.random()
            if fate < 0.04:
                row |= {"test_result": None, "is_system_error": True, "finish_reason": "agent_error"}
                row["metadata"]["error"] = {"message": "503", "type": "HTTPError"}
            elif fate < 0.08:
                result |= {"result": False, "is_system_error": True, "tb": "KeyError: 'x'"}
            elif fate < 0.1:
                row["test_result"] = None
            rows.append(row)
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows), encoding="utf-8")
    return path


#: What the public aggregator (microsoft/thinkingbox at dafead8, `tb agg -f json`) says of `public_rows()`.
AGGREGATOR: dict[str, Any] = {
    "num_tests": 5,
    "total_runs": 50,
    "mean_pass": 0.64,
    "unbiased_pass_at_k": [[1, 0.64], [5, 0.9555555555555555], [10, 1.0]],
    "pass_power_k": [[1, 0.64], [5, 0.23286400000000002], [10, 0.09806937348000003]],
    "per_test": {
        "crm.py:test_0": [9, 1, 0, 60.0, 40.0, 2.5],
        "crm.py:test_1": [6, 4, 0, 62.0, 40.0, 3.5],
        "crm.py:test_2": [2, 7, 1, 64.0, 40.0, 4.5],
        "crm.py:test_3": [8, 0, 2, 66.0, 40.0, 5.5],
        "crm.py:test_4": [7, 1, 2, 68.0, 40.0, 6.5],
    },
}


def our_figures(path: Path) -> dict[str, Any]:
    """What both define, with the public aggregator's policy: an error is a run that did not pass."""
    run = load_run(path)
    counts = run.counts.void_as_failure()
    table = task_table(counts, [1, 5, 10])
    figures = {n: mean_figure(table.column(n), n, counts.trials).value for n in table.names}
    c = run.records.columns
    return {
        "num_tests": len(counts),
        "total_runs": int(counts.valid.sum()),
        "mean_pass": counts.passes.sum() / counts.valid.sum(),
        "unbiased_pass_at_k": [[1, figures["pass@1"]], [5, figures["pass@5"]], [10, figures["pass@10"]]],
        "pass_power_k": [[1, figures["pass@1"]], [5, figures["pass^5 plug-in"]], [10, figures["pass^10 plug-in"]]],
        "per_test": {
            uid: [
                int(counts.passes[i]),
                int(run.counts.valid[i] - run.counts.passes[i]),
                int(run.counts.void[i]),
                c["policy_completion"][c["uid"] == uid.encode()].mean(),
                c["policy_reasoning"][c["uid"] == uid.encode()].mean(),
                c["seconds_total"][c["uid"] == uid.encode()].mean(),
            ]
            for i, uid in enumerate(counts.uids)
        },
    }


def assert_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in ("num_tests", "total_runs"):
        assert ours[name] == theirs[name]
    assert ours["mean_pass"] == pytest.approx(theirs["mean_pass"], abs=1e-12)
    for name in ("unbiased_pass_at_k", "pass_power_k"):
        assert [k for k, _ in ours[name]] == [k for k, _ in theirs[name]]
        assert [v for _, v in ours[name]] == pytest.approx([v for _, v in theirs[name]], abs=1e-12)
    assert ours["per_test"].keys() == theirs["per_test"].keys()
    for uid, row in ours["per_test"].items():
        assert row == pytest.approx(theirs["per_test"][uid], abs=1e-9), uid


def test_figures_are_the_public_aggregators(tmp_path: Path) -> None:
    import_results(tmp_path, "theirs", write(tmp_path / "r.jsonl", public_rows()))
    assert_equal(our_figures(tmp_path / "eval" / "theirs"), AGGREGATOR)


def aggregate(checkout: str, file: Path) -> dict[str, Any]:
    code = "from thinkingbox.cli.agg_main import agg; agg()"
    command = [sys.executable, "-c", code, str(file), "-f", "json"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    data = json.loads(done.stdout)
    row = ("passed", "failed", "error")
    means = ("output_tokens", "reasoning_tokens", "exec_time")
    per_test = {t["uid"]: [*(t[n] for n in row), *(t[n]["avg_val"] for n in means)] for t in data["per_test"]}
    return {**data["metrics"], "per_test": per_test}


@pytest.mark.skipif("THINKINGBOX" not in os.environ, reason="THINKINGBOX names no checkout of the public framework")
def test_against_the_real_aggregator(tmp_path: Path) -> None:
    checkout = os.environ["THINKINGBOX"]
    file = write(tmp_path / "r.jsonl", public_rows())
    theirs = aggregate(checkout, file)
    assert_equal(theirs, AGGREGATOR)
    import_results(tmp_path, "theirs", file)
    assert_equal(our_figures(tmp_path / "eval" / "theirs"), theirs)
    # And the other way: what we export, the aggregator reads to the same figures.
    export_jsonl(read_records(tmp_path / "eval" / "theirs"), tmp_path / "back.jsonl")
    assert_equal(our_figures(tmp_path / "eval" / "theirs"), aggregate(checkout, tmp_path / "back.jsonl"))


def test_conversation_of_a_public_row() -> None:
    row = public_rows(1)[3]
    record = EpisodeRecord.from_json(from_decode_result(row, index=4, policy="p", settings="s"))
    assert [m["role"] for m in record.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    turn = record.messages[2]
    assert turn["reasoning_content"] == "I look first."
    assert [c["function"]["arguments"] for c in turn["tool_calls"]] == [{"id": 3}, {}]
    assert (record.turns, record.tool_calls, record.tool_errors) == (2, 2, 1)
    assert record.usage["policy"].cached == 80
    assert record.domain == "crm"
    assert record.trial.index == 4


def test_our_export_comes_back_whole(campaign: Any, tmp_path: Path) -> None:
    path = campaign.add(
        "base",
        [3, 1],
        4,
        voids=[(1, 2)],
        final_state={"shop": {"orders": 1}},
        problems={"bad_arguments": 1},
        tokens={"ids": [1, 2], "mask": [0, 1], "logprobs": [0.0, -0.5]},
    )
    assert export_jsonl(read_records(path), tmp_path / "out.jsonl") == 8
    done = import_results(tmp_path / "again", "base", tmp_path / "out.jsonl")
    assert (done.lines, done.tasks, done.voids, done.skipped) == (8, 2, 1, 0)
    before = {r.trial.key: r.to_json() for r in read_records(path)}
    after = {r.trial.key: r.to_json() for r in read_records(tmp_path / "again" / "eval" / "base")}
    for row in (*before.values(), *after.values()):
        if row["outcome"] == "void":
            row["final_state"] = row["failure"] = None
    assert before == after
    run = load_run(tmp_path / "again" / "eval" / "base")
    assert run.coverage.valid == 7
    assert not run.coverage.unexpected


def test_a_broken_last_line_is_reported_and_skipped_only_when_asked(tmp_path: Path) -> None:
    rows = public_rows(2)
    for tail in ('{"uid":"crm.py:test_0","mess', '{"uid":"crm.py:test_0","mess\n', '{"ui', "{}x\n"):
        file = write(tmp_path / "r.jsonl", rows)
        file.write_text(file.read_text() + tail)
        with pytest.raises(UserError, match=r"r\.jsonl:11 ") as caught:
            import_results(tmp_path / "a", "x", file)
        if tail.startswith('{"ui'):
            assert "--salvage" in caught.value.do
        assert not (tmp_path / "a" / "eval" / "x" / "manifest.json").exists()
    file.write_text(write(file, rows).read_text() + '{"uid":"crm.py:test_0","mess')
    done = import_results(tmp_path / "a", "x", file, salvage=True)
    assert (done.lines, done.skipped) == (10, 1)


def test_joined_files_are_noticed(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", public_rows(2) * 2)
    with pytest.raises(UserError, match=r"r\.jsonl:11 is line 1 again"):
        import_results(tmp_path, "x", file)
    done = import_results(tmp_path, "x", file, accept_duplicates=True)
    assert (done.lines, load_run(tmp_path / "eval" / "x").plan.trials) == (20, 4)


def test_a_broken_line_in_the_middle_is_never_skipped(tmp_path: Path) -> None:
    for broken in ('{"uid":"crm.py:test_9"}', '{"uid":"crm.py:test_9",', "[]"):
        lines = [json.dumps(r, separators=(",", ":")) for r in public_rows(2)]
        lines[3] = broken
        file = tmp_path / "r.jsonl"
        file.write_text("\n".join(lines) + "\n")
        with pytest.raises(UserError, match=r"r\.jsonl:4 is not a result"):
            import_results(tmp_path / "a", "x", file, salvage=True)


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    rows = public_rows(80)
    file = write(tmp_path / "r.jsonl", rows)
    done = import_results(tmp_path, "x", file)
    stage = tmp_path / "eval" / "x"
    assert len(list((stage / "shards").glob("*.h5"))) == min(os.cpu_count() or 1, 16, len(rows) // 64)
    run = load_run(stage)
    assert done.lines == len(run.records) == 400
    assert run.plan.trials == 80
    assert run.coverage.valid + done.voids == 400


def test_settings_come_from_the_file_beside(tmp_path: Path) -> None:
    for name, temperature in (("a", 1.0), ("b", 1.0), ("c", 0.5)):
        write(tmp_path / f"{name}.jsonl", public_rows(1))
        facts = f"setup_config: {{temperature: {temperature}}}\nrun_start_dt: 2026-01-0{len(name)}\n"
        (tmp_path / f"{name}_run_metadata.yaml").write_text(facts)
        import_results(tmp_path, name, tmp_path / f"{name}.jsonl")
    a, b, c = (load_run(tmp_path / "eval" / n).plan for n in "abc")
    assert a.facts["settings"] == b.facts["settings"] != c.facts["settings"]
    with pytest.raises(UserError, match="there already"):
        import_results(tmp_path, "a", tmp_path / "a.jsonl")


def test_csv(campaign: Any, tmp_path: Path) -> None:
    path = campaign.add("base", [1], 3, voids=[(0, 1)])
    assert export_csv(read_records(path), tmp_path / "t.csv") == 3
    rows = list(csv.DictReader((tmp_path / "t.csv").open(encoding="utf-8")))
    assert [r["index"] for r in rows] == ["0", "1", "2"]
    assert sorted(r["outcome"] for r in rows).count("void") == 1
    assert next(r["reward"] for r in rows if r["outcome"] == "void") == ""
    assert rows[0]["policy_prompt"] == "3000"


def test_message_forms() -> None:
    """Arguments that never parsed, several calls, direct responses, thinking alone."""
    record = EpisodeRecord.from_json(from_decode_result(public_rows(1)[3], index=0, policy="p", settings="s"))
    record.messages[2]["tool_calls"].append({"id": "c", "function": {"name": "set", "arguments": "{broken"}})
    record.messages.append({"role": "assistant", "content": "", "reasoning_content": "Only thought."})
    row = to_decode_result(record)
    kinds = [m["T"] for m in row["messages"]]
    assert kinds.count("ParallelToolCall") == 1
    assert row["messages"][3]["tool_calls"][2]["arguments"] == {"raw": "{broken"}
    back = from_decode_result(row, index=0, policy="p", settings="s")["messages"]
    assert [m["role"] for m in back] == [m["role"] for m in record.messages]
    assert back[-1] == {"role": "assistant", "content": "", "reasoning_content": "Only thought."}


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_holds_no_formula(text: str, tmp_path: Path) -> None:
    trial = Trial(uid=text, index=0, policy="p", settings="s")
    with Journal(tmp_path / "a.jsonl") as journal:
        journal.append(EpisodeRecord(trial=trial, outcome=Outcome.PASS, reward=1.0, domain="plain").to_json())
    export_csv(read_records(tmp_path), tmp_path / "t.csv")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["uid"], row["domain"]) == (f"'{text}", "plain")
