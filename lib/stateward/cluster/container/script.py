"""The image: every `apptainer exec` of stateward is rendered here, as a small launcher script that runs on the nodes.

A launcher is bash alone, so that nothing of a node's own Python matters. Inside the image it finds itself again
(programs start others by the same name) and then only becomes the program. The user's home is not mounted and the
environment is not inherited, since both shadow what the image pins; what a job needs of its environment is passed on by
name.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from stateward.cluster.node import CACHES
from stateward.cluster.profile import ClusterProfile, ContainerConfig
from stateward.errors import UserError

#: Variables that go into the image: the allocation, the devices, the site's proxy, what tunes communication, and
#: switches of the engines.
PASSED = (
    *("SLURM_*", "SLURMD_*", "SUBMITIT_*", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "NVIDIA_*"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("NCCL_*", "GLOO_*", "UCX_*", "FI_*", "RAY_*", "VERL_*", "VLLM_*", "STATEWARD_*", "OMP_NUM_THREADS", "USER", "TZ"),
)
#: A batch script tells the launcher of its ranks which run directory it is, since that is known only then.
RUN_DIR = "STATEWARD_RUN_DIR"

_LAUNCHER = r"""#!/bin/bash
# __WHAT__ of the image, with the arguments given. Written by stateward.cluster.container.
[ -z "${APPTAINER_CONTAINER:-}" ] || exec __EXEC__"$@"
set +e -uo pipefail
image=__IMAGE__ apptainer=__APPTAINER__ scratch=__SCRATCH__ secrets=__SECRETS__
fail() { echo "error: $1 → do: $2" >&2; exit 2; }
[ -r "$image" ] || fail "$(hostname) does not see the image $image" "put it on the file system that all nodes share"
command -v "$apptainer" > /dev/null || fail "$(hostname) has no $apptainer on PATH" "add its module to modules"
case $PWD in /tmp | "${HOME:-/tmp}") fail "started in $PWD, which would be mounted" "start from the checkout" ;; esac
if [ -n "$secrets" ] && [ "$(stat -Lc %a "$secrets")" != 600 ]; then
    fail "others can read $secrets, or it is not there" "chmod 600 $secrets"
fi
# Private to this program, node-local, and gone at its end: it is /tmp of the image, with the home and the caches in it.
private=$(mktemp -d "$scratch/sw-${SLURM_JOB_ID:-0}-XXXXXX") ||
    fail "$scratch cannot be written" "set scratch in the profile"
mkdir "$private"/{home,__CACHES__}

# Binds and variables of the person's own Apptainer settings would come from outside what is written here.
for name in $(compgen -e); do
    case $name in
        APPTAINERENV_* | SINGULARITYENV_* | APPTAINER_BIND* | SINGULARITY_BIND*) unset "$name" ;;
    esac
done
# By variables, not by --env: that one splits at commas, and stands in the process list.
for name in $(compgen -e); do
    case $name in
        __PASSED__)
            export "APPTAINERENV_$name=${!name}" ;;
    esac
done
export APPTAINERENV_PYTHONNOUSERSITE=1 __CACHE_VARIABLES__

options=(--cleanenv --no-eval --no-privs --no-mount home,cwd,tmp,hostfs)
[ ! -e /dev/nvidiactl ] || options+=(--nv)
options+=(--home "$private/home:/tmp/home" --bind "$private:/tmp" --pwd "$PWD")
bind() { # SOURCE TARGET [ro]
    case $2 in
        /tmp/*) if [ -d "$1" ]; then mkdir -p "$private${2#/tmp}"; else install -D /dev/null "$private${2#/tmp}"; fi ;;
    esac
    options+=(--bind "$1:$2${3:+:$3}")
}
# A place is mounted once: where the working directory lies in one that is, it is as that one says.
seen=no
for place in "${STATEWARD_RUN_DIR:-/}" __TARGETS__; do
    case $PWD/ in "${place%/}/"*) [ "$place" = / ] || seen=yes ;; esac
done
[ $seen = yes ] || [ "$PWD" = / ] || bind "$PWD" "$PWD" ro
[ -z "${STATEWARD_RUN_DIR:-}" ] || bind "$STATEWARD_RUN_DIR" "$STATEWARD_RUN_DIR"
__BINDS__[ -z "$secrets" ] || options+=(--env-file "$secrets")

# Slurm signals this shell, or every process of the step, as it tracks them; apptainer passes on what it gets.
forward() { signalled=yes; kill -s "$1" "$child" 2> /dev/null; }
trap 'exit 143' TERM
# In the background, so that the shell can answer a signal; there it would start programs that ignore INT.
(trap - INT QUIT TERM; exec "$apptainer" --silent exec "${options[@]}" "$image" __EXEC_WORDS__"$@") <&0 &
child=$!
for signal in TERM USR1 USR2; do trap "forward $signal" "$signal"; done
while :; do
    signalled=
    wait "$child"
    status=$?
    [ -n "$signalled" ] || break # a signal ends the wait, not the program
done
child=
# What submitit asked of scontrol, which the image does not have. A busy controller may close the connection under it;
# one that has heard it ends this step.
if [ -s "$private/.requeue" ]; then
    for pause in 1 2 4 8 16; do
        signalled=
        if scontrol requeue "$(cat "$private/.requeue")"; then break; fi
        sleep "$pause" &
        wait "$!" || kill "$!" 2> /dev/null
        [ -z "$signalled" ] || break
    done
fi
trap '' TERM USR1 USR2 # the cleaning up is not cut short
rm -rf -- "$private"
exit "$status"
"""


def launcher(
    container: ContainerConfig, *, scratch: str, program: Sequence[str] = ("python",), binds: Sequence[Path | str] = ()
) -> str:
    """The text of a launcher: a script that runs `program` and its own arguments in the image, on the node it is on.

    The working directory is seen read-only, the run directory (in ``STATEWARD_RUN_DIR``) and `binds` as they are; /tmp
    is a private folder in `scratch`. Exit status: the program's; 2 with a line of text if it could not be started.

    Args:
        binds: folders that are mounted at their own path, besides the profile's ``SOURCE[:TARGET[:ro]]``.

    Raises:
        UserError: a path that a bind cannot name.
    """
    if not container.image:
        raise UserError("the profile names no image", do="set container.image, or call without a container")
    paths = [str(path) for path in binds]
    for path in paths:
        if ":" in path or "," in path:
            raise UserError(f"{path!r} cannot be mounted", "a bind is written SOURCE:TARGET", "rename it")
    mounts: list[tuple[str, ...]] = [(path, path) for path in dict.fromkeys(paths)]
    # SOURCE alone is mounted at its own path.
    mounts += [tuple(bind.split(":")) if ":" in bind else (bind, bind) for bind in container.binds]
    words = "".join(f"{word} " for word in map(shlex.quote, program))
    replaced = {
        "__WHAT__": f"Runs {' '.join(program)}" if program else "Runs a command",
        "__EXEC__": words,
        "__EXEC_WORDS__": words,
        "__IMAGE__": shlex.quote(container.image),
        "__APPTAINER__": shlex.quote(container.command),
        "__SCRATCH__": shlex.quote(scratch),
        "__SECRETS__": shlex.quote(container.env_file),
        "__CACHES__": ",".join(dict.fromkeys(name for name in CACHES.values() if name)),
        "__CACHE_VARIABLES__": " ".join(
            f"APPTAINERENV_{variable}=/tmp/{name}".rstrip("/") for variable, name in (CACHES | {"TMPDIR": ""}).items()
        ),
        "__PASSED__": " | ".join(PASSED),
        "__TARGETS__": shlex.join(mount[1] for mount in mounts) or "/",
        "__BINDS__": "".join(f"bind {shlex.join(mount)}\n" for mount in mounts),
    }
    text = _LAUNCHER
    for mark, value in replaced.items():
        text = text.replace(mark, value)
    return text


def service_binds(profile: ClusterProfile) -> list[Path]:
    """Programs of the profile that jobs start and the image does not hold."""
    return [Path(profile.typesense)] if "/" in profile.typesense else []


def launcher_lines(text: str, path: str) -> list[str]:
    """Lines of a batch script that write a launcher to `path` (shell syntax, already quoted) and make it executable."""
    return [f"cat > {path} <<'LAUNCHER'", text.rstrip("\n"), "LAUNCHER", f"chmod 700 {path}"]
