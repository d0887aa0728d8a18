# One non-recursive Makefile. `make` builds everything into build/, `make help` lists the targets.
B       ?= build
SAN     ?=
CC      := gcc
PREFIX  ?= /usr/local
DESTDIR ?=
VERSION := 0.1.0
# empty for compilers other than the one CI uses
WERROR  ?= -Werror

CFLAGS  ?= -O2 -g
# override: what the project needs stays when somebody gives CFLAGS= or LDFLAGS= on the command line
override CFLAGS += -std=c17 -D_GNU_SOURCE -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wvla -Wno-format-truncation -fPIC -fno-omit-frame-pointer
override CFLAGS += -Idaemon -I. -Iclient -isystem $(B)/gen -DVERSION='"$(VERSION)"' $(shell pkg-config --cflags libuv yaml-0.1)
ifneq ($(SAN),)
override CFLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=undefined
override LDFLAGS += -fsanitize=$(SAN)
endif
# grpc.pc drags in some sixty absl flags that a dynamic link does not need
CLIENT_LIBS := -lgrpc -lgpr -lprotobuf-c -lcrypto -lpthread
LIBS    := -luv -lgrpc -lgpr -lprotobuf-c -lyaml -lcurl -lssl -lcrypto -lpthread -lm

PROTOS  := $(wildcard proto/tensorcast/daemon/v1/*.proto proto/grpc_health/v1/*.proto proto/grpc_reflection/*/*.proto proto/google/rpc/*.proto)
PROTOBUF_C := $(shell pkg-config --variable=includedir libprotobuf-c)
GEN_C   := $(PROTOS:proto/%.proto=$(B)/gen/%.pb-c.c)
GEN_H   := $(GEN_C:.c=.h)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
.DEFAULT_GOAL := all
include daemon/plugins/cuda/cuda.mk

ENGINE_C := $(wildcard daemon/base/*.c daemon/observe/*.c daemon/source/*.c daemon/source/*/*.c daemon/stores/*.c daemon/device/*.c daemon/transport/*.c \
              daemon/normalize/*.c daemon/resolve/*.c daemon/plan/*.c daemon/execute/*.c daemon/integrity/*.c \
              daemon/calibration/*.c config/*.c)
DAEMON_C := $(filter-out daemon/main.c,$(wildcard daemon/replica/*.c daemon/rpc/*.c daemon/load/*.c daemon/api/*.c daemon/*.c))
CLIENT_C := $(wildcard client/*.c)
CLI_C    := $(filter-out client/cli/main.c,$(wildcard client/cli/*.c))
UNIT_C   := $(filter-out $(if $(CUDA_FOUND),,$(CUDA_UNIT_C)) $(if $(NCCL_INCLUDE),,$(NCCL_UNIT_C)),\
              $(wildcard tests/unit/test_*.c tests/property/test_*.c tests/golden/test_*.c tests/fault/test_*.c))
FUZZ_C   := $(wildcard tests/fuzz/fuzz_*.c)
SUPPORT_C := $(wildcard tests/support/*.c)
EXAMPLE_C := $(wildcard examples/*.c)
ALL_C    := $(ENGINE_C) $(DAEMON_C) $(CLIENT_C) $(CLI_C) $(UNIT_C) $(FUZZ_C) $(SUPPORT_C) $(EXAMPLE_C) \
            $(wildcard daemon/main.c client/cli/main.c tests/fuzz/replay.c tests/property/mapping_tool.c tests/bench/*.c) \
            $(CUDA_C) $(FAKE_CUDA_C) $(FAKE_NCCL_C)
HEADERS  := $(filter-out daemon/plugins/%,$(wildcard daemon/*.h daemon/*/*.h daemon/*/*/*.h config/*.h client/*.h client/cli/*.h))

GEN_O    := $(patsubst $(B)/gen/%.c,$(B)/obj/gen/%.o,$(GEN_C))
# what the library takes of the daemon: nothing with a loop, so no libuv
CLIENT_BASE_O := $(call obj,$(filter-out daemon/base/helpers.c daemon/base/loop.c daemon/base/unix_listener.c,$(wildcard daemon/base/*.c)))
UNITS    := $(UNIT_C:tests/%.c=$(B)/tests/%)
REPLAYS  := $(FUZZ_C:tests/fuzz/%.c=$(B)/tests/fuzz/%)
EXAMPLES := $(EXAMPLE_C:examples/%.c=$(B)/examples/%)

all: $(B)/tensorcastd $(B)/tensorcast $(B)/libtensorcast.so $(B)/libtensorcast.a $(EXAMPLES) plugins

help:
	@echo "all check asan tsan fuzz long bench gpu stores layers limits headers format docs install uninstall clean"

# --- generated code -----------------------------------------------------------------------------------------------
# const_strings: texts of messages are const; an option of protobuf-c alone, so it is not in the protocol itself
$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h &: proto/%.proto
	@mkdir -p $(B)/gen $(B)/proto/$(*D)
	@sed 's|^package .*|&\nimport "protobuf-c/protobuf-c.proto";\noption (pb_c_file).const_strings = true;|' $< > $(B)/proto/$*.proto
	protoc-c -I$(B)/proto -I$(PROTOBUF_C) --c_out=$(B)/gen $(B)/proto/$*.proto

$(B)/gen/descriptor_set.binpb: $(PROTOS)
	@mkdir -p $(B)/gen
	protoc -Iproto --include_imports --descriptor_set_out=$@ $^

$(B)/obj/descriptor_set.o: $(B)/gen/descriptor_set.binpb
	@mkdir -p $(@D)
	cd $(B)/gen && ld -r -b binary -z noexecstack -o ../obj/$(@F) descriptor_set.binpb

# --- objects and archives -----------------------------------------------------------------------------------------
$(B)/obj/gen/%.o: $(B)/gen/%.c $(GEN_H)
	@mkdir -p $(@D)
	$(CC) $(filter-out -Werror -Wshadow -Wstrict-prototypes,$(CFLAGS)) -MMD -MP -c -o $@ $<

# -MMD leaves out what comes by -isystem, so a changed .proto makes everything again
$(B)/obj/%.o: %.c $(GEN_H)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(call obj,$(CLIENT_C)): override CFLAGS += -fvisibility=hidden

$(B)/libengine.a: $(call obj,$(ENGINE_C))
$(B)/libdaemon.a: $(call obj,$(DAEMON_C)) $(GEN_O) $(B)/obj/descriptor_set.o
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

$(B)/tensorcastd: $(call obj,daemon/main.c) $(B)/libdaemon.a $(B)/libengine.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

# of the daemon only what --standalone needs: its loads without sockets, and its reports
$(B)/tensorcast: $(call obj,client/cli/main.c) $(B)/libcli.a $(B)/libtensorcast.a $(B)/libdaemon.a $(B)/libengine.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

$(B)/examples/%: $(B)/obj/examples/%.o $(B)/libtensorcast.so
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $< -L$(B) -ltensorcast -Wl,-rpath,'$$ORIGIN/..'

# --- tests --------------------------------------------------------------------------------------------------------
TEST_LIBS = $(wildcard $(B)/nothing) $(B)/libsupport.a $(B)/libcli.a $(B)/libtensorcast.a $(B)/libdaemon.a $(B)/libengine.a
$(UNITS): $(B)/tests/%: $(B)/obj/tests/%.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(TEST_EXTRA) $(LIBS) -lcmocka -ldl

$(REPLAYS): $(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/replay.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $(B)/obj/tests/fuzz/$*.o $(B)/obj/tests/fuzz/replay.o \
	  -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(LIBS) -ldl

$(B)/tests/mapping_tool: $(B)/obj/tests/property/mapping_tool.o $(TEST_LIBS)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(TEST_LIBS) -Wl,--end-group $(LIBS) -ldl

# Runs every unit, property, golden and fault test, and replays every fuzz corpus.
check: $(UNITS) $(REPLAYS) $(B)/tests/mapping_tool
	@bash tests/run_units.sh $(B)

# The same with sanitizers, and the binaries beside them for `bash tests/run.sh`.
asan:
	$(MAKE) B=$(B)/asan SAN=address,undefined CFLAGS="-O1 -g" check all
tsan:
	$(MAKE) B=$(B)/tsan SAN=thread CFLAGS="-O1 -g" check all
# The binaries alone.
asan-all:
	$(MAKE) B=$(B)/asan SAN=address,undefined CFLAGS="-O1 -g" all
tsan-all:
	$(MAKE) B=$(B)/tsan SAN=thread CFLAGS="-O1 -g" all

# Hours: bash tests/long.sh FUZZ_SECONDS CHAOS_SECONDS for less.
long:
	bash tests/long.sh

# libFuzzer builds; bash tests/fuzz/run.sh SECONDS runs each of them for so long.
fuzz:
	bash tests/fuzz/build.sh $(B)/fuzz

$(B)/tests/bench/engine_bench $(B)/tests/bench/http_bench: $(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

$(B)/tests/bench/remote_bench: $(B)/obj/tests/bench/remote_bench.o $(B)/libsupport.a $(B)/libengine.a
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -ldl

$(B)/bench/native: tests/bench/native.c
	@mkdir -p $(@D)
	gcc -O3 -march=native -std=gnu17 -Wall -Wextra -Werror -o $@ $< -lpthread

# BENCH="--stores", "--groups" or "--vllm", with options of theirs behind, measures only these; the first and last are not in it else
bench: all
	bash tests/bench/run.sh $(B) $(BENCH)
	$(if $(BENCH),,bash tests/bench/run.sh $(B) --groups)

# real object stores, the long way
stores:
	bash tests/stores/run.sh

# --- house rules --------------------------------------------------------------------------------------------------
layers:
	@bash tests/layers.sh

limits:
	@bash tests/limits.sh

headers: $(GEN_H)
	@for h in $(HEADERS); do $(CC) $(CFLAGS) -fsyntax-only -x c $$h || { echo "$$h does not compile alone"; exit 1; }; done

format:
	clang-format -i $(ALL_C) $(HEADERS) $(wildcard daemon/plugins/*/*.h tests/fake/*/*.h)

docs: $(B)/tests/golden/test_config_docs $(B)/tests/golden/test_plan_docs
	for writer in $^; do UPDATE=1 $$writer || exit 1; done

install: all
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' VERSION='$(VERSION)' bash config/install.sh $(B)

uninstall:
	DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' VERSION='$(VERSION)' bash config/install.sh $(B) remove

clean:
	rm -rf $(B)

.PHONY: all help check asan tsan asan-all tsan-all long fuzz bench gpu stores layers limits headers format docs install uninstall clean plugins
.SECONDARY:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
