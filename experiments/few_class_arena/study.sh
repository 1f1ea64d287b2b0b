#!/usr/bin/env bash
# The real runs behind README.md: DATA=folder of images/ and weights/, OUT=the store. Two cores, about an hour; resumes.
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
run $cifar $grid seed=0,1 model=test_resnet,test_efficientnet,test_vit
run $cifar subset.ncl=2 "subset.seed=range(0,5)" model=cifar_resnet20
run $cifar $grid $(mobilenet 025) adaptation=probe

# ImageNet, one image a class: four published networks under every protocol
imagenet="dataset=folder dataset.root=$images/imagenet_sample.zip task=predict"
for width in 025 050 100; do run $imagenet $(mobilenet $width); done
run $imagenet model=squeezenet1_0 model.weights="$weights/squeezenet1_0.safetensors"

# Few images a class: sub-models from scratch, probes, similarity
small() { # dataset words, after which the sizes
  run "$@" task=embed $encoder
  run "$@" subset.ncl=2,3,5,10 'subset.seed=range(0,5)' model=test_resnet model.input_size=64 recipe.epochs=30
  run "$@" subset.ncl=2,3,5,10 'subset.seed=range(0,5)' $(mobilenet 025) adaptation=probe
}
small dataset=folder dataset.root="$images/clothing.zip"
small dataset=folder dataset.root="$images/signdigits.zip" dataset.mirror=false
# its two drawings lists share the Greek letters
small dataset=manifest dataset.root="$images/omniglot_small.zip" dataset.file=index.csv dataset.name=omniglot_small dataset.mirror=false \
  "dataset.where=\"split == 'small1' or alphabet != 'Greek'\"" 'dataset.splits={small1: test, small2: test}'
small dataset=manifest dataset.root="$images/grocery.zip" dataset.file=index.csv dataset.name=grocery
small dataset=manifest dataset.root="$images/grocery.zip" dataset.file=index.csv dataset.name=grocery_coarse 'dataset.columns={label: coarse_id}'

# Grocery with all its 81 products: a full model whose answers can be grouped to their kinds (its own classes.csv)
run dataset=manifest dataset.root="$images/grocery.zip" dataset.file=index.csv dataset.name=grocery $(mobilenet 100) adaptation=probe
