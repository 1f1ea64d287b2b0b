#!/usr/bin/env bash
# The real runs behind README.md: DATA=folder of images/ and weights/, OUT=the store. Two cores, about three hours; resumes.
#   DATA=... OUT=outputs bash experiments/few_class_arena/study.sh
set -euo pipefail
: "${DATA:?the folder of images/ and weights/}" "${OUT:=outputs}"
export OMP_NUM_THREADS=1
run() { fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=${JOBS:-2}" "$@" || true; }
images="$DATA/images" weights="$DATA/weights"
mobilenet() { echo "model=mobilenetv1_$1 model.weights=$weights/mobilenetv1_$1.safetensors"; }
encoder="model@encoder=mobilenetv1_050 encoder.weights=$weights/mobilenetv1_050.safetensors"
grid="subset.ncl=2,3,4,5 subset.seed=range(0,5)"

# CIFAR-10: published full models, sub-models of four architectures (three of them twice), a probe, similarity
cifar="dataset=folder dataset.root=$images/cifar10.zip"
for depth in 20 56; do
  run $cifar task=predict model=cifar_resnet$depth model.weights="$weights/cifar10_resnet$depth.safetensors"
done
run $cifar task=embed $encoder
run $cifar $grid seed=0,1 recipe.min_steps=0 model=test_resnet,test_efficientnet,test_vit  # 90 to 220 steps
run $cifar $grid $(mobilenet 025) adaptation=probe

# ImageNet, one image a class: four published networks under every protocol
imagenet="dataset=folder dataset.root=$images/imagenet_sample.zip task=predict"
for width in 025 050 100; do run $imagenet $(mobilenet $width); done
run $imagenet model=squeezenet1_0 model.weights="$weights/squeezenet1_0.safetensors"

# A fair contest on CIFAR-10, in a store of its own: sub-models and full models of the same 300 images a class.
# 385 to 405 steps each; another full model saw every image as often as a sub-model of two classes did (1,900 steps).
# Learning rates: the best of three by val_top1 on the subsets of seed 100 with 2 and 5 classes, in $OUT/tune.
contest() { # learning rate, the others, words of the model
  local fair="recipe.flip=true recipe.shift=0.125 recipe.scale_min=1.0 recipe.val_max=0 recipe.min_steps=0"
  fit() { OUT="$OUT/contest" run $cifar $fair "recipe.lr=$lr" "recipe.epochs=$1" "recipe.warmup_epochs=$2" "${@:3}"; }
  tune() { OUT="$OUT/tune" run $cifar $fair "recipe.epochs=$1" "${@:2}"; }
  local lr=$1 others=$2
  shift 2
  tune 10 "recipe.lr=$lr,$others" subset.ncl=2,5 subset.seed=100 "$@"
  tune 9 "recipe.lr=$others" "$@"
  fit 44 5 subset.ncl=2 'subset.seed=range(0,5)' "$@"
  fit 31 3.5 subset.ncl=3 'subset.seed=range(0,5)' "$@"
  fit 18 2 subset.ncl=5 'subset.seed=range(0,5)' "$@"
  fit 9 1 seed=0,1,2 "$@"
  fit 44 5 "$@"
}
contest 0.003 0.001,0.01 model=cifar_resnet20
contest 0.0015 0.0005,0.005 model=test_vit +model.kwargs.patch_size=4

# Sub-models from scratch, probes and similarity, on 30 subsets and more of each of five sets: a store of its own
similar() { # numbers of classes, dataset words; the training from scratch in $scratch
  local all=("${@:2}")
  OUT="$OUT/similarity" run "${all[@]}" task=embed $encoder
  OUT="$OUT/similarity" run "${all[@]}" "subset.ncl=$1" 'subset.seed=range(0,10)' $(mobilenet 025) adaptation=probe
  OUT="$OUT/similarity" run "${all[@]}" "subset.ncl=$1" 'subset.seed=range(0,10)' model=test_resnet $scratch
}
clothing=(dataset=folder dataset.root="$images/clothing.zip")
signdigits=(dataset=folder dataset.root="$images/signdigits.zip" dataset.mirror=false)
# its two drawings lists share the Greek letters
omniglot=(dataset=manifest dataset.root="$images/omniglot_small.zip" dataset.file=index.csv dataset.name=omniglot_small
  dataset.mirror=false "dataset.where=\"split == 'small1' or alphabet != 'Greek'\"" 'dataset.splits={small1: test, small2: test}')
grocery=(dataset=manifest dataset.root="$images/grocery.zip" dataset.file=index.csv dataset.name=grocery)
scratch="" similar 2,3,4,5 $cifar
scratch="model.input_size=64 recipe.epochs=30"
similar 2,3,4,5,10 "${clothing[@]}"
similar 2,3,4,5,10 "${signdigits[@]}"
similar 2,3,4,5,10 "${omniglot[@]}"
similar 2,3,4,5,10 "${grocery[@]}"
# with all 81 products: a full model whose answers can be grouped to their kinds (its own classes.csv)
OUT="$OUT/similarity" run "${grocery[@]}" $(mobilenet 100) adaptation=probe
