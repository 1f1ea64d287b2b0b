# fca in a container. Not built here: no Docker daemon was at hand.
#   docker build -t fca .                                                             PyTorch for CPUs
#   docker build -t fca --build-arg TORCH=cu130 --build-arg EXTRAS=launchers,open-clip .     for CUDA 13.0
#   docker run --rm -v $PWD/outputs:/data/outputs fca run dataset=digits subset.ncl=5       with GPUs: --gpus all
FROM python:3.11-slim

# cpu, or a CUDA of https://download.pytorch.org/whl/
ARG TORCH=cpu
ARG EXTRAS=launchers

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /opt/fca
COPY constraints.txt ./
RUN pip install --index-url https://download.pytorch.org/whl/${TORCH} -c constraints.txt torch torchvision
COPY pyproject.toml README.md LICENSE ./
COPY conf conf
COPY fca fca
COPY hydra_plugins hydra_plugins
RUN pip install -c constraints.txt ".[${EXTRAS}]" && fca --version

RUN useradd --create-home user && mkdir -p /data/outputs && chown -R user /data
USER user
WORKDIR /data
VOLUME ["/data/outputs"]
ENTRYPOINT ["fca"]
CMD ["--help"]
