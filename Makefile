# `make run`: the hysteresis loop from nothing. `make test`: all quick checks.
PYTHON ?= python3
BIN := .venv/bin
RANKS ?= 2
SOURCES := $(wildcard mcattn/*.py kernels/*.py)

.PHONY: run run-linear run-planes run-verify test test-long lint docs bench bench-peers bench-answers clean

run: runs/hysteresis.h5
	$(BIN)/mcattn analyze $<
	$(BIN)/mcattn plot $<

run-linear: runs/hysteresis_linear.h5
	$(BIN)/mcattn analyze $<
	$(BIN)/mcattn plot $<

# The points of the planes P*(L) and P*(V); what is finished already is kept.
PLANES := $(foreach L,8 12 16 24 32 48 64,runs/planes/L$(L).h5) $(foreach V,8 32 64,runs/planes/V$(V).h5)

run-planes: $(PLANES)
	$(BIN)/mcattn analyze --view planes $^
	$(BIN)/mcattn plot --view planes $^ -o runs/planes.png
	$(BIN)/mcattn plot --view sizes $(filter runs/planes/L%,$^) -o runs/sizes.png

# Long sequences need many windows, and each of their sweeps is long: one ladder, fewer sweeps.
runs/planes/L48.h5 runs/planes/L64.h5: SHORTER := --set protocol.ladders=1 --set protocol.sweeps=8000

runs/planes/L%.h5: jobs/plane.toml .venv/.stamp
	mkdir -p $(@D)
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/mcattn run $< -o $@ --set model.L=$* $(SHORTER)

runs/planes/V%.h5: jobs/plane.toml .venv/.stamp
	mkdir -p $(@D)
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/mcattn run $< -o $@ --set model.V=$*

# Theory, minima, Monte Carlo, SGLD and training of one model, for softmax and linear attention.
VERIFY := $(foreach name,adam sgld sampling linear_adam linear_scratch linear_sgld linear_sampling,\
  runs/verify/$(name).h5)

run-verify: $(VERIFY)
	$(BIN)/mcattn analyze --view verify $^
	$(BIN)/mcattn plot --view verify $^ -o runs/verify.png

runs/%.h5: jobs/%.toml .venv/.stamp $(SOURCES)
	mkdir -p $(@D)
	rm -rf $@ $@.parts
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/mcattn run $< -o $@

# Test files spread over two processes: many tests wait for others that they started.
test: .venv/.stamp
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-long: .venv/.stamp
	$(BIN)/python -m pytest -q -m "long or not long"

lint: .venv/.stamp-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run jobs/*.sbatch; fi

# The site, in build/docs; its notebook is shown with the results stored in it.
docs: .venv/.stamp-docs
	$(BIN)/sphinx-build -q -W --keep-going docs build/docs

bench: .venv/.stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/kernels.py

# General samplers have an environment of their own: they need JAX.
bench-peers: .venv-peers/.stamp
	.venv-peers/bin/python benchmarks/peers.py

.venv-peers/.stamp: benchmarks/requirements-peers.txt setup.cfg pyproject.toml
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check -r $< -e .
	touch $@

# Seconds from a cold start to answers, on two ranks.
bench-answers: .venv/.stamp
	$(BIN)/python benchmarks/answers.py

# The stamp, not the interpreter, marks a finished environment: a failed `venv` leaves the latter.
.venv/.stamp: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mcattn needs Python 3.11 or newer; found $$($(PYTHON) -V)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || \
	  { echo "Python lacks ensurepip; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mpich,test]'
	touch $@

.venv/.stamp-lint: .venv/.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[lint]'
	touch $@

.venv/.stamp-docs: .venv/.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

clean:
	rm -rf .venv .venv-peers build *.egg-info runs .pytest_cache .hypothesis .mypy_cache .ruff_cache
