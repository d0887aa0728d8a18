# The CUDA plugin, and the fakes of CUDA and NCCL that its tests run on. Without a CUDA runtime to build against all of them are
# left out, without nccl.h what is about NCCL. CUDA=0 and NCCL=0 leave them out anyway.
CUDA    ?= auto
NCCL    ?= auto
CUDA_FOUND := $(if $(filter 0,$(CUDA)),,$(shell CC='$(CC)' bash daemon/plugins/cuda/find_cuda.sh))
CUDA_INCLUDE := $(word 1,$(CUDA_FOUND))
CUDART       := $(word 2,$(CUDA_FOUND))
CUDART_SONAME := $(word 3,$(CUDA_FOUND))
NCCL_INCLUDE := $(if $(filter 0,$(NCCL)),,$(word 4,$(CUDA_FOUND)))
NCCL_FOLDER  := $(filter-out -,$(word 5,$(CUDA_FOUND)))

NCCL_C  := $(wildcard daemon/plugins/cuda/*nccl*.c)
CUDA_C  := $(filter-out $(if $(NCCL_INCLUDE),,$(NCCL_C)),$(wildcard daemon/plugins/cuda/*.c))
FAKE_CUDA_C := $(wildcard tests/fake/cuda/*.c)
FAKE_NCCL_C := $(wildcard tests/fake/nccl/*.c)
NCCL_UNIT_C := $(wildcard tests/unit/test_*nccl*.c)
CUDA_UNIT_C := $(wildcard tests/unit/test_device_cuda*.c) $(NCCL_UNIT_C)
CUDA_PLUGIN := $(B)/plugins/tensorcast-cuda.so
# what the plugin takes of the daemon: values without state
CUDA_BASE_O := $(call obj,$(addprefix daemon/,base/copy.c base/error.c base/foreign_fd.c base/memory.c base/quota.c base/transpose.c device/device.c))

OTHER_PLUGIN := $(B)/fake/plugin/tensorcast-cuda.so
FAKE_DRIVER  := $(B)/fake/cuda/libcuda.so.1
FAKE_RUNTIME := $(B)/fake/cuda/$(CUDART_SONAME)
FAKE_NCCL    := $(if $(NCCL_INCLUDE),$(B)/fake/nccl/libnccl.so.2)

$(call obj,$(CUDA_C) $(FAKE_CUDA_C) $(FAKE_NCCL_C) $(CUDA_UNIT_C)): override CFLAGS += -isystem $(CUDA_INCLUDE) \
  $(if $(NCCL_INCLUDE),-isystem $(NCCL_INCLUDE)) -Itests/fake/cuda -Itests/fake/nccl

# The folders of the runtime and of NCCL are searched after LD_LIBRARY_PATH and after the plugin's own. Packages have none.
CUDA_RPATH ?= -Wl,--enable-new-dtags -Wl,-rpath,'$$ORIGIN:$(abspath $(dir $(CUDART)))$(NCCL_FOLDER:%=:%)'
$(CUDA_PLUGIN): $(call obj,$(CUDA_C)) $(CUDA_BASE_O) daemon/plugins/cuda/tensorcast-cuda.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,--version-script=daemon/plugins/cuda/tensorcast-cuda.map -Wl,-z,defs $(CUDA_RPATH) \
	  -o $@ $(filter %.o,$^) $(CUDART) -lpthread

$(OTHER_PLUGIN): $(call obj,tests/fake/plugin/other_abi.c)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -o $@ $^

$(FAKE_DRIVER): $(call obj,$(filter-out %/fake_runtime.c,$(FAKE_CUDA_C)))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $^ -lpthread

$(FAKE_RUNTIME): $(call obj,tests/fake/cuda/fake_runtime.c) $(FAKE_DRIVER) tests/fake/cuda/libcudart.map
	@mkdir -p $(@D)
	sed 's/@SONAME@/$(CUDART_SONAME)/' tests/fake/cuda/libcudart.map > $@.map
	$(CC) $(LDFLAGS) -shared -Wl,-soname,$(CUDART_SONAME) -Wl,--version-script=$@.map -Wl,-rpath,'$$ORIGIN' \
	  -o $@ $(filter %.o,$^) $(FAKE_DRIVER) -ldl

$(FAKE_NCCL): $(call obj,$(FAKE_NCCL_C)) $(FAKE_DRIVER)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libnccl.so.2 -Wl,-rpath,'$$ORIGIN/../cuda' -o $@ $^ -lpthread

ifneq ($(CUDA_FOUND),)
plugins: $(CUDA_PLUGIN) $(FAKE_RUNTIME) $(FAKE_NCCL)
	@$(if $(NCCL_INCLUDE),,$(if $(filter 0,$(NCCL)),echo 'plugins: tensorcast-cuda.so without NCCL because NCCL=0',bash daemon/plugins/cuda/find_cuda.sh -v >/dev/null))
CUDA_UNITS := $(CUDA_UNIT_C:tests/%.c=$(B)/tests/%)
$(CUDA_UNITS): $(CUDA_PLUGIN) $(FAKE_RUNTIME) $(OTHER_PLUGIN)
$(CUDA_UNITS): TEST_EXTRA = -Wl,--no-as-needed $(FAKE_RUNTIME) $(FAKE_DRIVER) -Wl,-rpath,'$$ORIGIN/../../fake/cuda'
NCCL_UNITS := $(NCCL_UNIT_C:tests/%.c=$(B)/tests/%)
$(NCCL_UNITS): $(FAKE_NCCL)
$(NCCL_UNITS): TEST_EXTRA += $(FAKE_NCCL) -Wl,-rpath,'$$ORIGIN/../../fake/nccl'
else
plugins:
	@$(if $(filter 0,$(CUDA)),echo 'plugins: no tensorcast-cuda.so because CUDA=0',bash daemon/plugins/cuda/find_cuda.sh -v)
endif

gpu: all ## T1 to T10 of docs/gpu.md, on a machine with a GPU
	bash tests/gpu/run.sh $(B)
.PHONY: gpu
