"""What several tests share: the launchers under test, and the folder of what they run."""

from pathlib import Path

LAB = Path(__file__).parents[1] / "cluster" / "lab"
LOCAL_RAY = [
    "num_cpus=2",
    "include_dashboard=false",
    "_node_ip_address=127.0.0.2",
]  # Ray takes 127.0.0.1 for another name of the machine
SLURM = ["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.signal_delay_s=10"]
ENGINES = {
    "basic": [],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "gpus": ["hydra/launcher=gpus", "machine.accelerator=cpu", "hydra.launcher.slots_per_gpu=2"],
    "ray": ["hydra/launcher=ray", *(f"+hydra.launcher.ray.init.{word}" for word in LOCAL_RAY)],
    "slurm": SLURM,
}
