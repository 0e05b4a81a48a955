# The course on a CPU: JupyterLab on port 8888, or any command.
#   docker build -t grpo-workbook .
#   docker run --rm -it -p 127.0.0.1:8888:8888 grpo-workbook
#   docker run --rm -it grpo-workbook python -m grpo_workbook run
# Versions: requirements.txt and requirements-unsloth.txt, through `make setup`.
FROM python:3.11.14-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends git g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --shell /bin/bash learner
USER learner
WORKDIR /home/learner/grpo-workbook
ENV VENV=/home/learner/venv PATH=/home/learner/venv/bin:$PATH
ENV GRPO_WORKBOOK_PROFILE=smoke OMP_NUM_THREADS=1

COPY --chown=learner requirements.txt requirements-unsloth.txt ./
# torch's build without CUDA, at the pinned version: 3 GB less than the build on PyPI
RUN python -m venv $VENV \
    && $VENV/bin/pip install --no-cache-dir "$(grep -o '^torch==[^ ]*' requirements.txt)" \
        --index-url https://download.pytorch.org/whl/cpu \
    && $VENV/bin/pip install --no-cache-dir -r requirements.txt \
    && $VENV/bin/pip install --no-cache-dir --no-deps -r requirements-unsloth.txt
COPY --chown=learner . .
RUN make setup

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "--notebook-dir=notebooks"]
