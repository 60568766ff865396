"""Drives a gateway with OpenEnv's own client and prints what it saw: openenv_client.py URL CALLS_JSON.

Uses the package `openenv` and nothing of stateward.
"""

import asyncio
import json
import sys

from openenv.core import GenericEnvClient

url, uid, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])


async def play(calls):
    async with GenericEnvClient(base_url=url) as env:
        first = await env.reset(task=uid, episode_id="mine")
        results = [await env.step({"kind": "call", "tool": name, "arguments": a}) for name, a in calls]
        state = await env.state()
        last = await env.step({"kind": "finish", "response": "done"})
        after = await env.state()
        try:
            await env.step({"kind": "call", "tool": "x", "arguments": {}})
            refused = ""
        except Exception as error:  # noqa: BLE001 - the text is what the test looks at
            refused = str(error)
        return {
            "first": first.observation,
            "done_first": first.done,
            "texts": [r.observation["text"] for r in results],
            "errors": [r.observation["is_error"] for r in results],
            "state": state,
            "reward": last.reward,
            "done": last.done,
            "last": last.observation,
            "final": after,
            "refused": refused,
        }


async def mistake():
    async with GenericEnvClient(base_url=url) as env:
        try:
            await env.reset(task="no_such.py:test")
        except Exception as error:  # noqa: BLE001 - the text is what the test looks at
            return str(error)
    return ""


async def main():
    golden, nothing, wrong = await asyncio.gather(play(calls), play([]), mistake())
    print(json.dumps({"golden": golden, "nothing": nothing, "mistake": wrong}))


asyncio.run(main())
