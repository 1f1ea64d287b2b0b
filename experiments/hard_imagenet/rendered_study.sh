#!/usr/bin/env bash
# Which metric of reliance follows the truth? Two networks learn rendered objects with a cue of known strength; accuracy
# under all changes and saliency are measured, judged by the truth and put on a page. Two cores, 14 minutes; resumes.
#   OUT=outputs/rendered_cues bash experiments/hard_imagenet/rendered_study.sh
set -euo pipefail
: "${OUT:=outputs/rendered_cues}" "${JOBS:=2}"
export OMP_NUM_THREADS=1
fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=$JOBS" experiment=rendered_cues
fca report report=reliance "outputs=$OUT" logger=none
