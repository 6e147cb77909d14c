# make demo   build the digits dataset, look at it and train on it, in an environment of its own
# make test   run the tests that need minutes, in an environment of its own
# make lint, docs, installs, integration, faults
#             run the others: the linters; what the documents show; in new environments; on real
#             servers, clusters and browsers; with kills, full disks and lost networks
# make suites all of those at once
# make coverage  run all of these, and print which lines of the package they reach
# make soak   run those that take long: many kills, much data
# make mutants  change one place of the package at a time, and print which changes no test notices;
#             PACKAGES="core resolving" SAMPLE=100 SEED=1 choose which
# make runners  fetch what builds on other runners of Beam need: Prism, Flink and Spark, the latter
#             two with their job servers; or one of `make prism`, `make flink`, `make spark`
# make kafka  fetch the Kafka broker that tests of streaming need
# make lock   renew constraints.txt, the exact versions that both use
# make clean  remove those environments and everything made in them

# The versions in constraints.txt are those for 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
DEMO_ENV := .venv/demo
TEST_ENV := .venv/test

unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH
unexport VIRTUAL_ENV

# $(call install,ENVIRONMENT,WHAT): a new environment with exactly the versions that were tested.
define install
@$(PYTHON) -m venv --clear $(1) || { echo "No venv in $(PYTHON): on Debian, apt install python3-venv"; exit 1; }
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
$(1)/bin/uv pip install --python $(1) --constraint constraints.txt \
    --build-constraint constraints.txt $(2)
@touch $@
endef

# Marks of tests that have a target of their own.
SUITES := lint docs installs integration faults
space := $(subst ,, )

.PHONY: demo test $(SUITES) suites coverage soak mutants runners prism flink spark kafka lock clean

demo: $(DEMO_ENV)/.installed
	$(DEMO_ENV)/bin/my-datasets demo --data-dir .demo/tensorflow_datasets --output .demo

test: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/python -m pytest -n 2 -m "not (slow or $(subst $(space), or ,$(SUITES)))" \
	    $(PYTEST_ARGS)

$(SUITES): $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/python -m pytest -n 2 -m "not slow and $@" $(PYTEST_ARGS)

suites: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/python -m pytest -n 2 -m "not slow and ($(subst $(space), or ,$(SUITES)))" \
	    $(PYTEST_ARGS)

coverage: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/python -m pytest -n 2 -m "not slow" --cov --cov-report=term $(PYTEST_ARGS)

soak: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/python -m pytest -m slow --timeout 3600 $(PYTEST_ARGS)

PACKAGES := core metadata resolving publishing building
SAMPLE := 30
SEED := 0
mutants: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/uv pip install --quiet --python $(TEST_ENV) --constraint constraints.txt cosmic-ray==8.7.0
	$(TEST_ENV)/bin/python tests/mutants.py --sample $(SAMPLE) --seed $(SEED) $(PACKAGES)

$(DEMO_ENV)/.installed: setup.py constraints.txt $(shell find my_datasets checksums -type f ! -name '*.pyc')
	$(call install,$(DEMO_ENV),.)

EVERYTHING := --editable '.[beam,dev,test]'
$(TEST_ENV)/.installed: setup.py constraints.txt
	$(call install,$(TEST_ENV),$(EVERYTHING))

# Prism as of the apache-beam in constraints.txt; Go compares checksums.
BEAM := 2.77.0
JOB_SERVERS := tests/building/engines/job_servers

runners: prism flink spark
prism: .beam/prism
flink: .beam/flink-job-server.jar
spark: .beam/spark-job-server.jar

.beam/prism:
	GOBIN=$(CURDIR)/.beam go install github.com/apache/beam/sdks/v2/go/cmd/prism@v$(BEAM)

.beam/flink-job-server.jar: MAIN_CLASS := org.apache.beam.runners.flink.FlinkJobServerDriver
.beam/spark-job-server.jar: MAIN_CLASS := org.apache.beam.runners.spark.SparkJobServerDriver
.beam/%-job-server.jar: $(JOB_SERVERS)/%/pom.xml $(JOB_SERVERS)/%/SHA256SUMS $(JOB_SERVERS)/pack.py
	rm -rf .beam/$*
	mvn --batch-mode --quiet --strict-checksums --file $< \
	    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/.beam/$*
	cd .beam/$* && sha256sum --check --strict --quiet $(CURDIR)/$(JOB_SERVERS)/$*/SHA256SUMS
	$(PYTHON) $(JOB_SERVERS)/pack.py $(MAIN_CLASS) .beam/$*

# The broker comes by its exact coordinates, once for all checkouts of this machine.
KAFKA_SOURCE := tests/kafka/broker
KAFKA_VERSION := $(shell sed -n 's:.*<version>\(.*\..*\)</version>.*:\1:p' $(KAFKA_SOURCE)/pom.xml)
KAFKA := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/my_datasets_tests/kafka-$(KAFKA_VERSION)

kafka: $(KAFKA)/.fetched

$(KAFKA)/.fetched: $(KAFKA_SOURCE)/pom.xml $(KAFKA_SOURCE)/SHA256SUMS
	mvn --batch-mode --quiet --strict-checksums --file $< \
	    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory=$(@D)
	cd $(@D) && sha256sum --check --strict --quiet $(CURDIR)/$(KAFKA_SOURCE)/SHA256SUMS
	touch $@

lock: $(TEST_ENV)/.installed
	$(TEST_ENV)/bin/uv pip compile setup.py --all-extras --upgrade --no-header --no-annotate \
	    --python-version 3.11 --output-file constraints.txt

clean:
	rm -rf .venv .demo .beam build dist
