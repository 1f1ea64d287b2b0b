#!/usr/bin/env bash
# Published ImageNet networks on real photographs with masks: silhouettes of texture-shape conflicts, boxes of 60 classes.
#   DATA=... OUT=outputs/reliance LIMIT=20 bash experiments/hard_imagenet/real_study.sh    about an hour on a core; resumes
# DATA: the folder of images/, weights/ and responses/.    LIMIT: images a class of the boxes (null: all, hours).
set -euo pipefail
: "${DATA:?the folder of images/, weights/ and responses/}" "${OUT:=outputs/reliance}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
NETWORKS="mobilenetv1_025 mobilenetv1_050 mobilenetv1_100 squeezenet1_0"
shifts="shift=reliance shift.noises.gaussian=[0.25] shift.noises.l2=[60] shift.noises.draws=1"
run() { fca run "outputs=$OUT" logger=none task=saliency $shifts "$@"; }
failed=0

conflicts="dataset=manifest dataset.root=$DATA/images/cue_conflict.zip dataset.file=index.csv dataset.mask_object=dark"
boxes="dataset=manifest dataset.root=$DATA/images/tinyimagenet60_boxes.zip dataset.file=index.csv"
for network in $NETWORKS; do
  weights="weights=$DATA/weights/$network.safetensors"
  run $conflicts 'dataset.columns={label: shape_label}' "dataset.where=\"kind == 'conflict'\"" \
    model=grouped "model@model.base=$network" "model.base.$weights" || failed=1
  # 1000-way networks: with logits, so that also the 60 classes alone may be predicted (masked)
  boxed="$boxes dataset.mask_box=[x0,y0,x1,y1] limit=${LIMIT:-null} model=$network model.$weights"
  fca run "outputs=$OUT" logger=none task=predict task.keep=logits $shifts $boxed || failed=1
  run $boxed || failed=1
done
people="responses: [$DATA/responses/geirhos_cue-conflict_humans_cnns.csv.gz]"
fca report report=reliance "outputs=$OUT" logger=none "+report.options={$people}"
exit $failed
