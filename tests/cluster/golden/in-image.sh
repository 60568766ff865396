#!/bin/bash
# Runs python of the image, with the arguments given. Written by stateward.cluster.container.
[ -z "${APPTAINER_CONTAINER:-}" ] || exec python "$@"
set +e -uo pipefail
image=/shared/stateward.sif apptainer=apptainer scratch=/local/scratch secrets=/shared/secrets.env
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
mkdir "$private"/{home,triton,inductor,extensions,vllm,flashinfer,cuda,numba,xdg,tmp}

# Binds and variables of the person's own Apptainer settings would come from outside what is written here.
for name in $(compgen -e); do
    case $name in
        APPTAINERENV_* | SINGULARITYENV_* | APPTAINER_BIND* | SINGULARITY_BIND*) unset "$name" ;;
    esac
done
# By variables, not by --env: that one splits at commas, and stands in the process list.
for name in $(compgen -e); do
    case $name in
        SLURM_* | SLURMD_* | SUBMITIT_* | CUDA_VISIBLE_DEVICES | GPU_DEVICE_ORDINAL | NVIDIA_* | http_proxy | https_proxy | all_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | ALL_PROXY | NO_PROXY | NCCL_* | GLOO_* | UCX_* | FI_* | RAY_* | VERL_* | VLLM_* | STATEWARD_* | OMP_NUM_THREADS | USER | TZ)
            export "APPTAINERENV_$name=${!name}" ;;
    esac
done
export APPTAINERENV_PYTHONNOUSERSITE=1 APPTAINERENV_TRITON_CACHE_DIR=/tmp/triton APPTAINERENV_TORCHINDUCTOR_CACHE_DIR=/tmp/inductor APPTAINERENV_TORCH_EXTENSIONS_DIR=/tmp/extensions APPTAINERENV_VLLM_CACHE_ROOT=/tmp/vllm APPTAINERENV_FLASHINFER_WORKSPACE_BASE=/tmp/flashinfer APPTAINERENV_CUDA_CACHE_PATH=/tmp/cuda APPTAINERENV_NUMBA_CACHE_DIR=/tmp/numba APPTAINERENV_XDG_CACHE_HOME=/tmp/xdg APPTAINERENV_TMPDIR=/tmp

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
for place in "${STATEWARD_RUN_DIR:-/}" /shared/tasks '/shared/it'"'"'s a model' /models; do
    case $PWD/ in "${place%/}/"*) [ "$place" = / ] || seen=yes ;; esac
done
[ $seen = yes ] || [ "$PWD" = / ] || bind "$PWD" "$PWD" ro
[ -z "${STATEWARD_RUN_DIR:-}" ] || bind "$STATEWARD_RUN_DIR" "$STATEWARD_RUN_DIR"
bind /shared/tasks /shared/tasks
bind '/shared/it'"'"'s a model' '/shared/it'"'"'s a model'
bind /data/models /models ro
[ -z "$secrets" ] || options+=(--env-file "$secrets")

# Slurm signals this shell, or every process of the step, as it tracks them; apptainer passes on what it gets.
forward() { signalled=yes; kill -s "$1" "$child" 2> /dev/null; }
trap 'exit 143' TERM
# In the background, so that the shell can answer a signal; there it would start programs that ignore INT.
(trap - INT QUIT TERM; exec "$apptainer" --silent exec "${options[@]}" "$image" python "$@") <&0 &
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
