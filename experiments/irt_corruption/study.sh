#!/usr/bin/env bash
# The real runs behind README.md: DATA=folder of images/, weights/ and responses/, OUT=the store. Two cores; resumes.
#   DATA=... OUT=outputs bash experiments/irt_corruption/study.sh
set -euo pipefail
: "${DATA:?the folder of images/, weights/ and responses/}" "${OUT:=outputs}"
export OMP_NUM_THREADS=1
failed=0
here=$(cd "$(dirname "$0")" && pwd)
run() { fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=${JOBS:-2}" "$@" || failed=1; }
cifar="dataset=folder dataset.root=$DATA/images/cifar10.zip"
kinds="shift=corruption/all shift.kinds=[defocus_blur,gaussian_noise,brightness]"

# Subjects: three small networks at six stages of training on 3,000 images, and two published ones that are good
run $cifar $kinds model=test_resnet,test_vit,test_efficientnet "recipe.snapshots=[0.01,0.1,0.3,0.5,0.7]" \
  recipe.epochs=20 recipe.flip=true recipe.shift=0.125
for depth in 20 56; do
  published="task=predict model=cifar_resnet$depth model.weights=$DATA/weights/cifar10_resnet$depth.safetensors"
  run $cifar $published
  run $cifar $kinds $published
done
fca run "outputs=$OUT" logger=none task=describe $cifar
# Published answers, in a store of their own: 65 ImageNet models, 34 CIFAR-10 models, humans beside networks
published=$OUT/published answers=$OUT/answers
mkdir -p "$published"
python "$here/published.py" "$DATA/responses" "$answers"
page() { fca report report=irt_corruption "outputs=$published" logger=none "report.name=$1" "report.title=$2" "+report.options=$3"; }
imagenet_verdicts="verdicts: $DATA/responses/labelerrors_imagenet_mturk.csv.gz, verdict_columns: [file, err_given_lt3], k: 500"
page imagenet_val "65 models on ImageNet" "{responses: [$answers/imagenet_val.npz], $imagenet_verdicts}"
page cifar10_test "34 models on CIFAR-10" "{responses: [$answers/cifar10_test.npz], verdicts: $answers/cifar10_verdicts.csv}"
judge() { fca analyse analysis=label_errors "outputs=$published" analysis.compat=seed001 "$@"; }  # the rule by both fits
judge "analysis.responses=[$answers/imagenet_val.npz]" analysis.k=500 \
  "analysis.verdicts=$DATA/responses/labelerrors_imagenet_mturk.csv.gz" "analysis.verdict_columns=[file,err_given_lt3]"
judge "analysis.responses=[$answers/cifar10_test.npz]" "analysis.verdicts=$answers/cifar10_verdicts.csv"
fca report report=irt_corruption "outputs=$OUT" logger=none \
  "+report.options={verdicts: $answers/cifar10_verdicts.csv}"
python "$here/side_by_side.py" "$OUT" cifar10 "$answers/cifar10_verdicts.csv"
page cue_conflict "Texture or shape" \
  "{responses: [$DATA/responses/geirhos_cue-conflict_humans_cnns.csv.gz], trait: agreement with shape}"
exit $failed
