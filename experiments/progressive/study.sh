#!/usr/bin/env bash
# The runs behind README.md: six networks learn drawn objects, predict 3,600 images of three levels, and are tested on a
# quarter of these. Two cores, about 40 minutes; resumes.
#   OUT=outputs bash experiments/progressive/study.sh
set -euo pipefail
: "${OUT:=outputs}"
export OMP_NUM_THREADS=1
failed=0
run() { fca run -m "outputs=$OUT" logger=none hydra/launcher=joblib "hydra.launcher.n_jobs=${JOBS:-2}" "$@" || failed=1; }
live() { run task=adaptive_test dataset=rendered model=run "seed=0,1,2" "$@"; }
trained="task == 'train' and dataset == 'rendered'"

run experiment=progressive
ids=$(fca results --outputs "$OUT" --query "$trained" --columns run_id --format csv | tail -n +2 | paste -sd,)
live "model.run_id=$ids"
live "model.run_id=$ids" task.policy=gre_two_stage task.estimator=mixed_logit
live "model.run_id=$ids" task.policy=static_k task.estimator=session_mean
live "model.run_id=$ids" task.width=0.03

# For each network a bank of the others
while IFS=, read -r id model; do
  others="dataset == 'rendered' and model != '$model'"
  fca analyse "outputs=$OUT" analysis=irt "analysis.query=\"$others\"" > /dev/null
  tables=$(grep -lF "$others" "$OUT"/tables/*/table.json)
  bank=$(basename "$(dirname "$(ls -t $(grep -l '"name": "irt_items"' $tables) | head -1)")")
  live "model.run_id=$id" "task.bank=$bank"
  live "model.run_id=$id" task.policy=random task.estimator=regression "task.bank=$bank" # what the choice of images adds
done < <(fca results --outputs "$OUT" --query "$trained" --columns run_id,model --format csv | tail -n +2)
fca report report=progressive "outputs=$OUT" logger=none
exit $failed
