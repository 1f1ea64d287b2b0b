#!/usr/bin/env bash
# Which metric of reliance follows the truth? Two networks learn rendered objects with a cue of known strength; accuracy
# under all changes and saliency are measured, judged by the truth and put on a page. Two cores, 15 minutes; resumes.
#   OUT=outputs/rendered_cues bash experiments/hard_imagenet/rendered_study.sh
set -euo pipefail
export OUT="${OUT:-outputs/rendered_cues}" JOBS="${JOBS:-2}" OMP_NUM_THREADS=1

fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=$JOBS" experiment=rendered_cues

# Saliency of the networks of each data set, on a layer of 6 x 6 places (the last one has 2 x 2 at 48 pixels).
# Run ids are quoted: 962275749e40 alone would be read as a number.
saliency() {
  local cue=$2 strength=$3 layer=layer2
  [[ $4 == test_resnet ]] || layer=blocks.2
  fca run -m "outputs=$OUT" logger=none task=saliency "task.layer=$layer" model=run "model.run_id=\"${5//,/\",\"}\"" \
    dataset=rendered dataset.{size=48,per_level=3,train_per_class=80,val_per_class=20} \
    "dataset.cue=$cue" "dataset.cue_strength=$strength"
}
export -f saliency
fca results --outputs "$OUT" --query "task == 'train'" --columns dataset,model,run_id --format csv | tail -n +2 | sort |
  awk -F, '{set = $1 " " $2; ids[set] = ids[set] (ids[set] ? "," : "") $3} END {for (set in ids) print set, ids[set]}' |
  xargs -P "$JOBS" -L 1 bash -c 'saliency "$@"' _

fca analyse analysis=metric_truth "outputs=$OUT"
fca report report=reliance "outputs=$OUT" logger=none
