#!/usr/bin/env bash
# Which metric of reliance follows the truth? Two networks learn rendered objects with a cue of known strength, all
# metrics are measured, and both analyses are written to a page. Two cores, about 15 minutes; resumes.
#   OUT=outputs/rendered_cues bash experiments/hard_imagenet/rendered_study.sh
set -euo pipefail
: "${OUT:=outputs/rendered_cues}"
export OMP_NUM_THREADS=1
run() { fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=${JOBS:-2}" "$@"; }

run experiment=rendered_cues
# Saliency of the networks of each data set; a run id in quotes, because 12e456789012 would be read as a number
fca results --outputs "$OUT" --query "task == 'train'" --columns dataset,run_id --format csv | tail -n +2 | sort |
  awk -F, '{ids[$1] = ids[$1] (ids[$1] ? "," : "") "\"" $2 "\""} END {for (set in ids) print set, ids[set]}' |
  while read -r _ cue strength ids; do
    run experiment=rendered_saliency "dataset.cue=$cue" "dataset.cue_strength=$strength" "model.run_id=$ids"
  done
fca analyse analysis=metric_truth "outputs=$OUT"
fca analyse analysis=reliance "outputs=$OUT"
