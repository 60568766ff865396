"""In the place of jobs/merge.py: a copy of the base under another name, once training stands at its last step."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
from pathlib import Path


def main() -> int:
    if "CHAOS_REAL" in os.environ:
        runpy.run_path(str(Path(__file__).parents[4] / "jobs" / "merge.py"), run_name="__main__")
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    from stateward.campaign.layout import model_path
    from stateward.config import load_config
    from stateward.store import Stage

    config = load_config(args.config, args.overrides)
    mark = args.run_dir / "train" / "checkpoints" / f"global_step_{config.train.steps}" / "VERIFIED"
    if not mark.is_file():
        return 2
    stage = Stage(args.run_dir, "merged")
    stage.begin({}, {"step": config.train.steps})
    for path in model_path(config).iterdir():
        if path.is_file():
            shutil.copyfile(path, stage.path / path.name)
    settings = json.loads((stage.path / "config.json").read_text())
    (stage.path / "config.json").write_text(json.dumps({**settings, "of_step": config.train.steps}))
    stage.done()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
