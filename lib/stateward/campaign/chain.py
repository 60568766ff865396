"""The campaign as Slurm jobs that depend on one another.

Two kinds of edge: *needs* (afterok) where the parent's exit status says that its stage is whole, and *continues*
(afterany) after arrays, whose tasks may fail one by one: the next job checks the markers and goes on or ends with an
error. Every dependent has ``kill-on-invalid-dep``, so a chain that broke does not pend for ever.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stateward.campaign.by_hand import sized
from stateward.campaign.job_record import (
    States,
    active_states,
    changes,
    note,
    settings_of_job,
    submitted_jobs,
    submitting,
)
from stateward.campaign.link import Link
from stateward.campaign.mounts import mounts
from stateward.campaign.owed import owed_by, owed_of_evaluation, owing, written_shards
from stateward.campaign.pipeline import JOBS
from stateward.campaign.sample_array import sample_role
from stateward.campaign.sampling import RUN_SHARD, SamplingPlan, Shard, dealt, write_shards
from stateward.campaign.simulator import simulator_seconds
from stateward.cluster.arrays import submit_array
from stateward.cluster.batch import plain_job, training_job
from stateward.cluster.profile import ClusterProfile
from stateward.cluster.scheduler import DOCTOR, cancel, queue, submit
from stateward.config import Config
from stateward.errors import UserError, nearest
from stateward.store.stage import Stage
from stateward.training.seeds import SeedRun, seed_runs


class Chain:
    """The links of one campaign on one cluster, and what was submitted of them (RUN_DIR/slurm/chain.json)."""

    def __init__(self, config: Config, config_file: str, profile: ClusterProfile, overrides: Sequence[str]) -> None:
        sample = sample_role(config, config.serve.devices, profile)
        self.config, self.profile = config, replace(sized(config, profile), sample=sample)
        self.run_dir = Path(config.run_dir).resolve()
        self.folder = self.run_dir / "slurm"
        self._config_file = str(Path(config_file).resolve())
        self._overrides = list(overrides)
        self._python = "python" if profile.container.image else sys.executable
        self._binds = mounts(config, config_file) if profile.container.image else []

    def links(self, probe: SamplingPlan, base: SamplingPlan, shards: int, seeds: int = 1) -> list[Link]:
        """The links in the order of submission. `shards`: array tasks of each sampling stage.

        The probe, the pool and the evaluation of the base serve all of `seeds` trainings, which do not wait for one
        another; each is merged and evaluated, and one report holds them all.
        """
        p, job = self.profile, self._job
        links = [
            *(self._planned(name, plan, dealt(plan, shards)) for name, plan in (("probe", probe), ("base", base))),
            Link(
                name="curate",
                kind="job",
                role=p.small,
                done=(self.run_dir / "pool" / "DONE").is_file(),
                continues=("probe",),
                commands=[job("probe", "--finish"), job("curate")],
            ),
        ]
        finish = [job("evaluate", "--label", "base", "--finish")]
        for run in seed_runs(self.config, seeds):
            links += self._training(run, dealt(base, shards))
            finish.append(job("evaluate", *self._evaluated(run), "--finish"))
        evaluations = [link for link in links if link.name == "base" or link.name.startswith("tuned")]
        marks = [self.run_dir / "eval" / link.name / "DONE" for link in evaluations]
        report = Link(
            name="report",
            kind="job",
            role=p.small,
            # One more training than last time makes another report. It marks the evaluations, too.
            done=all(path.is_file() for path in [self.run_dir / "report" / "DONE", *marks]),
            continues=tuple(link.name for link in evaluations),
            commands=[*finish, [self._python, str(JOBS / "report.py"), str(self.run_dir)]],
        )
        return [*links, report]

    def _training(self, run: SeedRun, base: Sequence[Shard]) -> list[Link]:
        """The links of one training: the heterogeneous job, its merge, its evaluation, in shards as that of the base.
        Their files are written by the merge job: only then is the tuned policy's fingerprint known."""
        p, stage = self.profile, Stage(self.run_dir, f"eval/{run.label}")
        planned = written_shards(stage)
        whole = sorted(uid for _, uids in planned for uid in uids) == sorted(uid for _, uids in base for uid in uids)
        merged = whole and (run.run_dir / "merged" / "DONE").is_file()
        # Once they are planned, as many shards as were asked for then.
        files = [path for path, _ in planned] if merged else [stage.path / "plan" / path.name for path, _ in base]
        left = owing(planned, owed_of_evaluation(stage)) if merged else files
        of_seed = run.label.removeprefix("tuned")
        pool = ["--pool", str(self.run_dir / "pool" / "train.yaml")] if of_seed else []
        write = ("--write-plan", "--shards", str(len(base)))
        return [
            Link(
                name=f"train{of_seed}",
                kind="het",
                role=p.train,
                beside=p.simulator,
                training=run.number,
                done=(run.run_dir / "train" / "DONE").is_file(),
                needs=("curate",),
                run_dir=run.run_dir,
                arguments=[*pool, *self._overrides, *self._of_seed(run)],
            ),
            Link(
                name=f"merge{of_seed}",
                kind="job",
                role=p.small,
                done=merged,
                training=run.number,
                needs=(f"train{of_seed}",),
                commands=[self._job("merge", of=run), self._job("evaluate", *self._evaluated(run), *write)],
            ),
            replace(
                self._array(run.label, files, [] if stage.is_done() else left),
                training=run.number,
                needs=(f"merge{of_seed}",),
            ),
        ]

    def _planned(self, name: str, plan: SamplingPlan, shards: Sequence[Shard]) -> Link:
        done = plan.stage.is_done(plan.inputs())
        return self._array(name, [path for path, _ in shards], [] if done else owing(shards, owed_by(plan)))

    def _array(self, name: str, files: list[Path], left: list[Path]) -> Link:
        """The array over `left`, those of the shards' `files` that have a trial to run. A stage with none is whole,
        though its marker, which the next job writes, may be missing."""
        return Link(name=name, kind="array", role=self.profile.sample, done=not left, shards=left or files)

    def _evaluated(self, run: SeedRun) -> list[str]:
        """Which evaluation, as jobs/evaluate.py takes it: RUN_DIR/merged is what it evaluates by itself."""
        own = run.run_dir != self.run_dir
        return ["--label", run.label, *(["--model", str(run.run_dir / "merged")] if own else [])]

    def submit(
        self, links: Sequence[Link], plans: dict[str, SamplingPlan], shards: int, resubmit: Sequence[str] = ()
    ) -> None:
        """Submit every link that is neither done nor still queued. Ids are recorded after each one.

        A link that still waits for jobs of an earlier call, of which one had to be submitted anew, is submitted anew
        too: it would start behind the wrong ones. So is a link that `resubmit` names, once its jobs are cancelled. One
        that is left as it is knows what was `changed` since it was submitted.

        Raises:
            UserError: `resubmit` names no link, Slurm refused one (the text says what stands), or another call is
                submitting.
        """
        for name in resubmit:
            if name not in (names := [link.name for link in links]):
                raise UserError(f"--resubmit {name}", "the chain has no such link", nearest(name, names))
            if name in plans:
                plans[name].require_unchanged()  # before its jobs are cancelled
        settings = settings_of_job(self.config, self.profile)
        with submitting(self.run_dir):
            record = submitted_jobs(self.run_dir)
            states = active_states(queue(i for ids in record.values() for i in ids))
            by_name: dict[str, Link] = {}
            anew: set[str] = set()
            for link in links:
                by_name[link.name] = link
                earlier = [job for job in record.get(link.name, []) if job in states]
                if link.done:
                    # The last task of an array may still seal its shard.
                    link.jobs = earlier if link.kind == "array" else []
                    continue
                stale = anew.intersection((*link.needs, *link.continues))
                cancelled: list[str] = []
                if earlier and (link.name in resubmit or (stale and _all_pending(states, earlier))):
                    cancel(earlier)
                    cancelled, earlier = ([] if _all_pending(states, earlier) else earlier), []
                if earlier:
                    link.jobs, link.changed = earlier, changes(self.run_dir, link.name, settings)
                    continue
                try:
                    link.jobs = self._submit(link, self._dependency(link, by_name, cancelled), plans, shards)
                except UserError as error:
                    done = ", ".join(name for name, other in by_name.items() if other.jobs) or "no link"
                    raise UserError(
                        f"link {link.name}: {error.what}",
                        f"submitted or queued so far: {done}",
                        "mend it and call this again: it goes on from here (where the site limits your jobs, call it"
                        f" again when these have ended, and lower max_array_tasks). {DOCTOR}",
                    ) from error
                anew.add(link.name)
                note(self.run_dir, link.name, link.jobs, settings)

    def _submit(self, link: Link, dependency: str, plans: dict[str, SamplingPlan], shards: int) -> list[str]:
        if link.kind == "array":
            if link.name in plans:
                write_shards(plans[link.name], shards)
            return submit_array(
                RUN_SHARD,
                link.shards,
                profile=self.profile,
                role=link.role,
                folder=self.folder / link.name,
                name=f"{self.config.name}-{link.name}",
                dependency=dependency,
                binds=self._binds,
            )
        script = self.folder / f"{link.name}.sh"
        script.write_text(self.script(link, dependency))
        return [submit(script)]

    def script(self, link: Link, dependency: str) -> str:
        """The batch script of a job or heterogeneous link."""
        name, log = f"{self.config.name}-{link.name}", self.folder / f"{link.name}-%j.log"
        if link.kind == "het":
            return training_job(
                profile=self.profile,
                name=name,
                log=log,
                config=self._config_file,
                run_dir=str(link.run_dir),
                python=sys.executable,
                home=str(JOBS.parent),
                overrides=link.arguments,
                dependency=dependency,
                binds=self._binds,
                simulator_seconds=simulator_seconds(self.config),
            )
        body = " && ".join(shlex.join(command) for command in link.commands)
        return plain_job(
            ["bash", "-c", body],
            profile=self.profile,
            role=link.role,
            name=name,
            log=log,
            dependency=dependency,
            binds=self._binds,
        )

    def _dependency(self, link: Link, by_name: dict[str, Link], cancelled: Sequence[str]) -> str:
        """`cancelled`: earlier jobs of the link that may have run. They may still be closing what they write, or Slurm
        was too busy to hear of it: the new ones wait until they are gone."""
        edges = [("afterok", name) for name in link.needs] + [("afterany", name) for name in link.continues]
        parts = [f"{kind}:{':'.join(by_name[name].jobs)}" for kind, name in edges if by_name[name].jobs]
        parts += [f"afterany:{':'.join(cancelled)}"] if cancelled else []
        return ",".join(parts)

    def _job(self, name: str, *arguments: str, of: SeedRun | None = None) -> list[str]:
        """A command of jobs/, on the campaign's run directory or on that of one training."""
        shared = ["--config", self._config_file, "--run-dir", str(of.run_dir if of else self.run_dir)]
        own = self._of_seed(of) if of else []
        return [self._python, str(JOBS / f"{name}.py"), *shared, *arguments, *self._overrides, *own]

    def _of_seed(self, run: SeedRun) -> list[str]:
        """What a training of several has of its own, as an override; nothing for the only one."""
        return [f"train.seed={run.config.train.seed}"] if run.run_dir != self.run_dir else []


def _all_pending(states: States, jobs: list[str]) -> bool:
    return all(state == "PENDING" for job in jobs for state in states[job])
