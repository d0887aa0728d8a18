# One non-recursive Makefile. `make` builds everything into build/, `make help` lists the targets that have a comment with ##.
B       ?= build
SAN     ?=
NOTE_THREADS = $(if $(SAN),,yes)
CC      := gcc
PREFIX  ?= /usr/local
# below PREFIX
LIBDIR  ?= lib
DESTDIR ?=
VERSION := $(shell cat VERSION)
# empty for compilers other than the one CI uses
WERROR  ?= -Werror

CFLAGS  ?= -O2 -g
# override: what the project needs stays when CFLAGS= or LDFLAGS= is given on the command line
override CFLAGS += -std=c17 -D_GNU_SOURCE -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wvla -Wcast-qual -Wno-format-truncation -fPIC -fno-omit-frame-pointer
override CFLAGS += -Idaemon -I. -Iclient -isystem $(B)/gen -DVERSION='"$(VERSION)"' $(shell pkg-config --cflags libuv yaml-0.1)
ifneq ($(SAN),)
override CFLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=undefined
override LDFLAGS += -fsanitize=$(SAN)
endif
CLIENT_LIBS := -lyaml -lnghttp2 -lprotobuf-c -lcrypto -lpthread
CLI_LIBS := -lzstd
LIBS    := -luv -lnghttp2 -lmicrohttpd -lgnutls -lprotobuf-c -lyaml -lcurl -lexpat -lssl -lcrypto -lpthread -lm

PROTOS  := $(wildcard proto/tensorcast/daemon/v1/*.proto proto/grpc_health/v1/*.proto proto/grpc_reflection/*/*.proto proto/google/rpc/*.proto)
PROTOBUF_C := $(shell pkg-config --variable=includedir libprotobuf-c)
GEN_C   := $(PROTOS:proto/%.proto=$(B)/gen/%.pb-c.c)
GEN_H   := $(GEN_C:.c=.h)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
comma := ,
.DEFAULT_GOAL := all
include daemon/plugins/cuda/cuda.mk
include daemon/plugins/etcd/etcd.mk

ENGINE_C := $(wildcard daemon/base/*.c daemon/observe/*.c daemon/source/*.c daemon/source/*/*.c daemon/blocks/*.c daemon/device/*.c \
              daemon/normalize/*.c daemon/convert/*.c daemon/resolve/*.c daemon/recipe/*.c daemon/variant/*.c daemon/plan/*.c daemon/execute/*.c daemon/integrity/*.c \
              daemon/export/*.c daemon/activations/*.c daemon/sink/*.c daemon/upload/*.c daemon/hosts/*.c config/*.c)
DAEMON_C := $(filter-out daemon/main.c,$(wildcard daemon/replica/*.c daemon/rpc/*.c daemon/load/*.c daemon/api/*.c daemon/message/*.c daemon/operators/*.c daemon/tracing/*.c daemon/*.c))
CLIENT_C := $(wildcard client/*.c)
CLI_C    := $(filter-out client/cli/main.c,$(wildcard client/cli/*.c))
UNIT_C   := $(filter-out $(LEFT_OUT:%=tests/%.c) $(if $(CUDA_FOUND),,$(CUDA_UNIT_C)) $(if $(NCCL_INCLUDE),,$(NCCL_UNIT_C)),\
              $(wildcard tests/unit/test_*.c tests/property/test_*.c tests/golden/test_*.c tests/fault/test_*.c))
FUZZ_C   := $(filter-out $(LEFT_OUT:%=tests/%.c),$(wildcard tests/fuzz/fuzz_*.c))
SUPPORT_C := $(wildcard tests/support/*.c)
EXAMPLE_C := $(wildcard examples/*.c)
HEADERS  := $(filter-out daemon/plugins/%,$(wildcard daemon/*.h daemon/*/*.h daemon/*/*/*.h config/*.h client/*.h client/cli/*.h))

GEN_O    := $(patsubst $(B)/gen/%.c,$(B)/obj/gen/%.o,$(GEN_C))
# what the library takes of the daemon: nothing with a loop, so no libuv
CLIENT_BASE_O := $(call obj,$(filter-out daemon/base/loop.c daemon/base/unix_listener.c,$(wildcard daemon/base/*.c)) \
                   $(wildcard daemon/recipe/*.c daemon/message/*.c))
UNITS    := $(UNIT_C:tests/%.c=$(B)/tests/%)
REPLAYS  := $(FUZZ_C:tests/fuzz/%.c=$(B)/tests/fuzz/%)
EXAMPLES := $(EXAMPLE_C:examples/%.c=$(B)/examples/%)

all: $(B)/tensorcastd $(B)/tensorcast $(B)/libtensorcast.so $(B)/libtensorcast.a $(EXAMPLES) plugins ## daemon, command, libraries, examples and plugins (B=folder, SAN=address,undefined or thread)

help: ## this list
	@sed -nE 's/^([a-z-]+):([^=#]|#[^#])*## (.*)/\1\t\3/p' $(MAKEFILE_LIST) | sort | awk -F '\t' '{ printf "%-12s %s\n", $$1, $$2 }'

# The commit that is built, as daemon/base/version.h tells it: only the two main() are compiled anew for another one. Empty where
# these files are in no repository of their own.
COMMIT := $(shell git ls-files --error-unmatch VERSION >/dev/null 2>&1 && git rev-parse --short=8 HEAD)
HASH := \#
$(shell mkdir -p $(B)/gen; echo '$(HASH)define COMMIT "$(COMMIT)"' >$(B)/gen/commit.new; \
        if cmp -s $(B)/gen/commit.new $(B)/gen/commit.h; then rm $(B)/gen/commit.new; else mv $(B)/gen/commit.new $(B)/gen/commit.h; fi)
$(call obj,daemon/main.c client/cli/main.c): $(B)/gen/commit.h

# --- generated code -----------------------------------------------------------------------------------------------
# const_strings: texts of messages are const; an option of protobuf-c alone, so it is not in the protocol itself
$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h &: proto/%.proto Makefile
	@mkdir -p $(B)/gen $(B)/proto/$(*D)
	@sed 's|^package .*|&\nimport "protobuf-c/protobuf-c.proto";\noption (pb_c_file).const_strings = true;|' $< > $(B)/proto/$*.proto
	protoc-c -I$(B)/proto -I$(PROTOBUF_C) --c_out=$(B)/gen $(B)/proto/$*.proto

$(B)/gen/descriptor_set.binpb: $(PROTOS)
	@mkdir -p $(B)/gen
	protoc -Iproto --include_imports --descriptor_set_out=$@ $^

$(B)/obj/descriptor_set.o: $(B)/gen/descriptor_set.binpb
	@mkdir -p $(@D)
	cd $(B)/gen && ld -r -b binary -z noexecstack -o ../obj/$(@F) descriptor_set.binpb

$(B)/obj/page.o: daemon/operators/page.html
	@mkdir -p $(@D)
	cd $(<D) && ld -r -b binary -z noexecstack -o "$(abspath $@)" $(<F)

# --- objects and archives -----------------------------------------------------------------------------------------
$(B)/obj/gen/%.o: $(B)/gen/%.c $(GEN_H)
	@mkdir -p $(@D)
	$(CC) $(filter-out -Werror -Wshadow -Wstrict-prototypes -Wcast-qual,$(CFLAGS)) -MMD -MP -c -o $@ $<

# tests hand constant texts to interfaces that have no const, and need no state of cmocka's; TEST_CFLAGS: what a build needs less of in them than in what they test
$(B)/obj/tests/%.o: override CFLAGS += -Wno-cast-qual -Wno-unused-parameter $(TEST_CFLAGS)
# -MMD leaves out what comes by -isystem, so a changed .proto makes everything again
$(B)/obj/%.o: %.c $(GEN_H)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

# loops over elements: vector code of both sides of a choice, and the roundings that are written
$(B)/obj/daemon/convert/%.o: override CFLAGS += -O3 -ffp-contract=off -fno-trapping-math
# One loop over cache lines: an atomic counter in it, which all threads share, takes ten times as long as the copy.
ifneq ($(findstring -ftest-coverage,$(CFLAGS)),)
$(B)/obj/daemon/base/copy.o: override CFLAGS += -fprofile-update=single
endif
$(call obj,$(CLIENT_C)): override CFLAGS += -fvisibility=hidden

$(B)/libengine.a: $(call obj,$(ENGINE_C))
$(B)/libdaemon.a: $(call obj,$(DAEMON_C)) $(GEN_O) $(B)/obj/descriptor_set.o $(B)/obj/page.o
$(B)/libcli.a: $(call obj,$(CLI_C))
$(B)/libsupport.a: $(call obj,$(SUPPORT_C))
$(B)/libtensorcast.a: $(call obj,$(CLIENT_C)) $(GEN_O) $(CLIENT_BASE_O)
$(B)/%.a:
	@mkdir -p $(@D); rm -f $@
	ar rcs $@ $^

$(B)/libtensorcast.so: $(call obj,$(CLIENT_C)) $(GEN_O) $(CLIENT_BASE_O) client/libtensorcast.map
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libtensorcast.so.0 -Wl,--version-script=client/libtensorcast.map \
	  -o $@ $(filter %.o,$^) $(CLIENT_LIBS)
	ln -sf $(@F) $@.0

# Programs of a wheel run with an older glibc than this machine's. Of what they link only expat would not: it salts its tables by
# arc4random_buf(), which came with glibc 2.36; getentropy() does the same.
$(B)/wheel/libexpat.a:
	@mkdir -p $(@D)
	objcopy --redefine-sym arc4random_buf=getentropy "$$($(CC) -print-file-name=libexpat.a)" $@
$(B)/wheel/bin/%: override LIBS := $(LIBS:-lexpat=$(B)/wheel/libexpat.a)
$(B)/wheel/bin/tensorcastd $(B)/wheel/bin/tensorcast: | $(B)/wheel/libexpat.a

$(B)/tensorcastd $(B)/wheel/bin/tensorcastd: $(call obj,daemon/main.c) $(B)/libdaemon.a $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

# of the daemon only what --standalone needs: its loads without sockets, and its reports
$(B)/tensorcast $(B)/wheel/bin/tensorcast: $(call obj,client/cli/main.c) $(B)/libcli.a $(B)/libtensorcast.a $(B)/libdaemon.a $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CLIENT_LIBS) $(CLI_LIBS) -ldl

$(B)/examples/%: $(B)/obj/examples/%.o $(B)/libtensorcast.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $< -L$(B) -ltensorcast -Wl,-rpath,'$$ORIGIN/..'

# --- tests --------------------------------------------------------------------------------------------------------
# 300 programs and their sanitized twins are linked: mold takes a third of the time of gold, and gold of that of ld. Summing a program
# for its build id takes mold a sixth of its time, and its threads something.
# gRPC is the other side of the server's tests alone; --as-needed: a program that needs none loads none of its fifty libraries
TEST_LD := -Wl,--as-needed -Wl,--build-id=none \
  $(if $(shell command -v ld.mold),-fuse-ld=mold -Wl$(comma)--thread-count=1,$(if $(shell command -v ld.gold),-fuse-ld=gold))
TEST_LIBS = $(wildcard $(B)/nothing) $(B)/libsupport.a $(B)/libcli.a $(B)/libtensorcast.a $(B)/libdaemon.a $(B)/libengine.a
$(UNITS): $(B)/tests/%: $(B)/obj/tests/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(TEST_LD) -o $@ $< -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(TEST_EXTRA) $(LIBS) $(CLIENT_LIBS) $(CLI_LIBS) -lgrpc -lgpr -lcmocka -ldl

$(REPLAYS): $(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/replay.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(TEST_LD) -o $@ $(B)/obj/tests/fuzz/$*.o $(B)/obj/tests/fuzz/replay.o \
	  -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(LIBS) $(CLIENT_LIBS) $(CLI_LIBS) -ldl

$(B)/tests/cast_tool $(B)/tests/variant_tool: $(B)/tests/%: $(B)/obj/tests/property/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(TEST_LD) -o $@ $< -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(LIBS) $(CLIENT_LIBS) $(CLI_LIBS) -ldl

# by which run_units.sh finds the programs that have no thread, see tsan
$(B)/tests/note_threads.so: tests/note_threads.c
	@mkdir -p $(@D)
	$(CC) -O2 -fPIC -shared -o $@ $< -ldl

check: $(UNITS) $(REPLAYS) $(if $(NOTE_THREADS),$(B)/tests/note_threads.so) ## every unit, property, golden and fault test, and every fuzz corpus
	@LEFT_OUT="$(LEFT_OUT)" bash tests/run_units.sh $(B)

T ?= unit/test_text
t: $(B)/tests/$(T) ## builds and runs one of them: make t T=unit/test_load, T=fuzz/fuzz_url
	$< $(if $(filter fuzz/%,$(T)),tests/fuzz/corpus/$(T:fuzz/fuzz_%=%))

# The same with sanitizers, and the binaries beside them for `bash tests/run.sh`. Tests are not what is checked for undefined behaviour,
# and to compile them is most of the work. (Without + a make that is in a variable gets one job.)
asan-build = $(MAKE) B=$(B)/asan SAN=address,undefined CFLAGS="-O1 -g1" TEST_CFLAGS="-O0 -fno-sanitize=undefined"
asan: ## check under AddressSanitizer and UndefinedBehaviorSanitizer, into build/asan
	+$(asan-build) check all
# A program in which the last plain check saw no pthread_create() has nothing for ThreadSanitizer to find.
tsan: ## check under ThreadSanitizer, into build/tsan; after check it leaves out programs without threads
	$(MAKE) B=$(B)/tsan SAN=thread CFLAGS="-O1 -g1" LEFT_OUT="$$(cat $(B)/tests/no_threads 2>/dev/null | xargs)" check all
# The binaries alone.
asan-all:
	+$(asan-build) all
tsan-all:
	$(MAKE) B=$(B)/tsan SAN=thread CFLAGS="-O1 -g1" all

# Optimized like a release, so that these programs are what check runs, with counters. Inlined early, functions would lose lines.
# Tests are not counted, and to compile them is most of the work; a failed assertion names its line without -g.
coverage-flags = CFLAGS="-O2 -DCOVERAGE_FOLDER='\"$(abspath $(B)/coverage)\"' -fprofile-arcs -ftest-coverage -fprofile-update=atomic -fno-early-inlining" LDFLAGS=--coverage \
  TEST_CFLAGS="-O0 -fno-profile-arcs -fno-test-coverage"
coverage-build = $(MAKE) B=$(B)/coverage $(coverage-flags)
coverage-units: ## check with counters, and which lines and branches it reached, by folder
	find $(B)/coverage -name '*.gcda' -delete 2>/dev/null || true
	+$(coverage-build) check
	mkdir -p $(B)/tests && cp $(B)/coverage/tests/no_threads $(B)/tests/
	python3 tests/coverage.py $(B)/coverage

coverage-all:
	+$(coverage-build) all
coverage-fuzz:
	$(MAKE) B=$(B)/fuzz-coverage $(coverage-flags) replays
replays: $(REPLAYS)

coverage: ## lines and branches that unit and end-to-end tests reach, by folder
	bash tests/coverage.sh $(B)/coverage

# Hours: bash tests/long.sh FUZZ_SECONDS CHAOS_SECONDS for less.
long: ## fuzzing, chaos and random layouts with variants for hours
	bash tests/long.sh

# bash tests/fuzz/run.sh SECONDS runs each of them for so long.
fuzz: ## libFuzzer builds
	bash tests/fuzz/build.sh $(B)/fuzz

$(B)/tests/bench/convert_bench: $(B)/obj/tests/bench/convert_bench.o $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

$(B)/tests/bench/hosts_model $(B)/tests/bench/operators_cost: $(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(B)/libsupport.a $(B)/libdaemon.a $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

$(B)/bench/native: tests/bench/native.c
	@mkdir -p $(@D)
	gcc -O3 -march=native -std=gnu17 -Wall -Wextra -Werror -o $@ $< -lpthread

# BENCH="--stores", "--groups", "--shards", "--variants" or "--vllm", with options of theirs behind, measures only these; the first and last are not in it else
bench: all ## measures loads, stores, groups and shards
	bash tests/bench/run.sh $(B) $(BENCH)
	$(if $(BENCH),,bash tests/bench/run.sh $(B) --groups)
	$(if $(BENCH),,bash tests/bench/run.sh $(B) --shards)

stores: ## tests against real object stores, the long way
	bash tests/stores/run.sh

# --- house rules --------------------------------------------------------------------------------------------------
layers: ## include lines point the way docs/layers.txt says
	@bash tests/layers.sh

limits: ## every limit has a test that goes beyond it
	@bash tests/limits.sh

house: ## rules of the house that no compiler knows
	@python3 setup/version.py && python3 tests/house_rules.py && python3 tests/reference.py

lint: $(GEN_H) ## clang-format, clang-tidy, cppcheck, shellcheck, ruff
	@bash tests/lint.sh $(filter-out -Werror,$(CFLAGS))

headers: $(GEN_H) ## every header compiles alone
	@printf '%s\n' $(HEADERS) | xargs -P "$$(nproc)" -n 20 $(CC) $(CFLAGS) -fsyntax-only -x c || { echo 'a header does not compile alone'; exit 1; }

format: ## clang-format over all of it
	git ls-files '*.c' '*.h' | xargs clang-format -i

version: ## writes what VERSION says to every place that says it
	@python3 setup/version.py --write

docs: $(B)/tests/golden/test_config_docs $(B)/tests/golden/test_plan_docs
	for writer in $^; do UPDATE=1 $$writer || exit 1; done
	@python3 tests/reference.py --write

install: all ## into PREFIX (DESTDIR)
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' VERSION='$(VERSION)' bash config/install.sh $(B)

uninstall: ## takes that away again
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' VERSION='$(VERSION)' bash config/install.sh $(B) remove

deb: ## Debian packages, into build/deb
	bash setup/deb.sh $(B)

wheel: $(B)/wheel/bin/tensorcastd $(B)/wheel/bin/tensorcast plugins ## a Python wheel with daemon and command, into build/wheel
	bash setup/wheel.sh $(B)

clean: ## removes build/
	rm -rf $(B)

.PHONY: all help check t asan tsan asan-all tsan-all coverage coverage-all coverage-fuzz replays coverage-units long fuzz bench gpu stores layers limits house lint headers \
  format version docs install uninstall deb wheel clean plugins
.SECONDARY:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
