"""Rounds of killing something at random under whole campaigns on a real one-machine Slurm.

    python tests/slurm/chaos/run.py --rounds 40 --seed 1 --tally runs/chaos.jsonl

A campaign is called again whenever nothing of it is queued any more, as a person would do it. At its end every planned
trial must be there once, none twice, and training must stand at its last step. One line a campaign goes to the tally,
and a call goes on from what stands there, so that the rounds can be spread over several calls.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from faults import FAULTS, Site
from moments import Aim, Stage
from tally import table

from stateward.campaign import by_hand, chain, pipeline
from stateward.campaign.owed import missing_trials
from stateward.campaign.sampling import plan_evaluation, plan_probe
from stateward.campaign.submission import submit_campaign
from stateward.cluster.one_machine import OneMachineSlurm, free_port_base
from stateward.cluster.profile import load_profile
from stateward.config import Config, load_config
from stateward.practice import dataset_path
from stateward.practice.policy import ensure_policy
from stateward.store import read_records

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: Campaigns take turns: without Ray; with Ray over all four nodes; with real steps of Verl, FSDP and vLLM in that Ray.
#: 40 rounds are one turn.
KINDS = ("plain", "ray", "plain", "verl", "ray", "plain")
ROUNDS_A_CAMPAIGN = {"plain": 10, "ray": 4, "verl": 2}
#: Where there is a Ray, its head and its workers are hit first, and then twice as often as each of the rest.
RAY_FAULTS = ("ray_head", "worker")
STEPS = {"plain": 12, "ray": 12, "verl": 3}
MOST_CALLS = 40


class Campaign:
    """One scripted campaign in a folder of its own."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        folder.mkdir(parents=True)
        self.run_dir = folder / "it's a run; here"
        shutil.copytree(ensure_policy(), folder / "policy")
        overrides = {"policy.model": str(folder / "policy"), "run_dir": str(self.run_dir)}
        for name, key, tasks in (("orders_train", "train", 8), ("orders_benchmark", "benchmark", 6)):
            uids = yaml.safe_load((dataset_path() / f"{name}.yaml").read_text())
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(uids[:tasks]))
            overrides[f"tasks.{key}"] = str(folder / f"{name}.yaml")
        self.overrides = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
        self.overrides += ["probe.trials=6", "probe.stop=fixed", "evaluate.trials=4"]
        self.overrides += ["episode.concurrency=1", f"train.steps={STEPS[kind]}"]
        if kind == "verl":  # small enough to come to a step between two hits
            self.overrides += ["train.nodes=1", "train.groups_per_step=2", "train.group_size=4", "train.save_every=1"]
        else:
            self.overrides += ["train.nodes=3", "train.groups_per_step=9"]
        self.config_file = ROOT / "configs" / "practice.yaml"
        self.profile = folder / "profile.yaml"
        self.profile.write_text(_profile())
        python = (HERE / "python.sh").read_text().replace("@PYTHON@", sys.executable)
        self.python = folder / "python.sh"
        self.python.write_text(python)
        self.python.chmod(0o755)

    @property
    def config(self) -> Config:
        return load_config(self.config_file, self.overrides)

    def call(self) -> None:
        """What a person types: jobs/pipeline.py --cluster."""
        for name, value in (("PYTHON", str(self.python)), ("CHAOS_REAL", "yes")):
            os.environ.pop(name, None)
            if self.kind == {"PYTHON": "plain", "CHAOS_REAL": "verl"}[name]:
                os.environ[name] = value
        profile = load_profile(self.profile)
        with (self.folder / "calls.log").open("a") as log, contextlib.redirect_stdout(log):
            submit_campaign(self.config, str(self.config_file), self.overrides, profile, 2, dry_run=False)

    @property
    def done(self) -> bool:
        return (self.run_dir / "report" / "DONE").is_file()

    def problems(self) -> list[str]:
        """What is not as it was planned; must be empty at the end."""
        config, found = self.config, []
        config.run_dir = str(self.run_dir)
        plans = [plan_probe(config), plan_evaluation(config, "base", Path(config.policy.model))]
        plans.append(plan_evaluation(config, "tuned", self.run_dir / "merged"))
        for plan in plans:
            counts, owed = missing_trials(plan)
            planned = len(plan.tasks) * plan.trials
            records = read_records(plan.stage.path, columns_only=True)
            if owed or counts["stored"] != planned or len(records) != planned:
                found.append(f"{plan.name}: {counts}, {len(records)} records for {planned} planned, owed {owed[:3]}")
            if records.duplicates:
                found.append(f"{plan.name}: ran twice: {records.duplicates[:3]}")
        steps = [json.loads(line)["step"] for line in (self.run_dir / "train" / "metrics.jsonl").open()]
        if sorted(set(steps)) != list(range(1, config.train.steps + 1)):
            found.append(f"train: steps {steps}")
        return found


def _profile() -> str:
    """The practice profile in the partition that higher ones preempt."""
    values = yaml.safe_load((ROOT / "configs" / "cluster" / "practice.yaml").read_text())
    values["train"]["partition"] = values["sample"]["partition"] = "low"
    values["array_concurrency"] = 0
    values["setup"] = [f"export PYTHONPATH='{HERE}'"]
    return yaml.safe_dump(values)


def run_campaign(
    number: int, kind: str, seed: int, rounds: int, cluster: OneMachineSlurm, folder: Path, before: Counter[str]
) -> dict[str, Any]:
    """One campaign with up to `rounds` hits; its line of the tally. `before`: how often each fault came in its kind."""
    site = Site(cluster, random.Random(f"{seed}-{number}"))
    campaign = Campaign(folder / f"c{number}", kind)
    stage, aim = Stage(site, campaign.run_dir / "train" / "metrics.jsonl"), Aim(kind, site.random)
    began, calls, hits, loads = time.monotonic(), 0, [], [os.getloadavg()[0]]
    while not campaign.done:
        site.mend()
        queue = cluster.run("squeue", "-h", "-o", "%j")
        ours = [name for name in queue.stdout.split() if name.startswith("practice-")]
        if queue.returncode == 0 and not ours and not campaign.done:
            site.mend(all_of_it=True)
            calls += 1
            if calls > MOST_CALLS:
                raise SystemExit(f"campaign {number} did not end after {MOST_CALLS} calls: {folder}")
            campaign.call()
        now = time.monotonic()
        loads.append(os.getloadavg()[0])
        if len(hits) < rounds and ours and aim.is_due(at := stage.now(), now):
            so_far = before + Counter(hit["fault"] for hit in hits)
            name, what = _hit(site, kind, so_far, hits[-1]["fault"] if hits else "")
            if what is not None:
                hits.append({"fault": name, "what": what, "stage": at, "at": round(now - began, 1)})
                print(f"  [{now - began:6.1f} s] {at or '-'}: {name}: {what}", flush=True)
                aim = Aim(kind, site.random)
        time.sleep(0.25)
    site.mend(all_of_it=True)
    row = {"campaign": number, "kind": kind, "seed": seed, "hits": hits, "calls": calls}
    row |= {"requeues": _requeues(cluster), "load": [round(min(loads), 1), round(max(loads), 1)]}
    return {**row, "seconds": round(time.monotonic() - began), "problems": campaign.problems()}


def _hit(site: Site, kind: str, so_far: Counter[str], last: str) -> tuple[str, str | None]:
    """Apply a fault that finds something to hit just now, of those that came least often so far, by lot.

    Never the last one again: a controller that is killed every ten seconds makes Slurm drain nodes and hold jobs until
    an administrator comes.
    """

    def turn(name: str) -> tuple[float, float]:
        weight = 2 if kind != "plain" and name in RAY_FAULTS else 1
        return (so_far[name] + 1) / weight, site.random.random()

    for name in sorted(sorted(FAULTS.keys() - {last}), key=turn):
        what = FAULTS[name](site)
        if what is not None:
            return name, what
    return "", None


def _requeues(cluster: OneMachineSlurm) -> int:
    """How often Slurm put jobs of ours back into the queue, over all campaigns of this cluster so far."""
    rows = cluster.run("sacct", "-X", "-n", "-D", "-P", "-o", "jobid,state,jobname").stdout.splitlines()
    again = ("REQUEUED", "NODE_FAIL", "PREEMPTED")
    return sum(any(state in row for state in again) for row in rows if "practice-" in row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tally", type=Path, required=True)
    parser.add_argument(
        "--at-most", type=int, default=0, metavar="N", help="campaigns in this call; 0: until all rounds"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="of campaigns, which take turns: plain, ray, verl")
    args = parser.parse_args()
    for name in [n for n in os.environ if n.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))]:
        del os.environ[name]
    # The stand-ins of train and merge beside the real other stages; nothing else of the campaign is replaced.
    for module in (chain, pipeline):
        module.JOBS = HERE / "jobs"
    by_hand.HOME = HERE
    chain.RUN_SHARD = "scripted_shard:run_shard"
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))
    root = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    accounting = bool(shutil.which("mariadbd"))
    cluster = OneMachineSlurm(root=root, port_base=free_port_base(16_000, 20_000), accounting=accounting)
    cluster.root.chmod(0o755)
    args.tally.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in args.tally.read_text().splitlines()] if args.tally.is_file() else []
    try:
        cluster.up()
        os.environ |= {"SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"]}
        until = len(rows) + args.at_most if args.at_most else sys.maxsize
        while (left := args.rounds - sum(len(row["hits"]) for row in rows)) > 0 and len(rows) < until:
            kinds = args.kinds.split(",")
            number, kind = len(rows), kinds[len(rows) % len(kinds)]
            came = Counter(hit["fault"] for row in rows if row["kind"] == kind for hit in row["hits"])
            print(f"campaign {number} ({kind}), {left} rounds left", flush=True)
            row = run_campaign(number, kind, args.seed, min(left, ROUNDS_A_CAMPAIGN[kind]), cluster, folder, came)
            print(f"  ended after {row['seconds']} s, {row['calls']} calls: {row['problems'] or 'whole'}", flush=True)
            rows.append(row)
            with args.tally.open("a") as file:
                file.write(json.dumps(row) + "\n")
            if row["problems"]:
                break
    finally:
        cluster.down()
        shutil.rmtree(cluster.root, ignore_errors=True)
    print("\n".join(table(rows)))
    if any(row["problems"] for row in rows):
        print(f"what is left of the campaigns: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
