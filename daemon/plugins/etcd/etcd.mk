# The plugin of hosts.etcd, on gRPC's C core (Debian's libgrpc-dev); left out where that is missing.
ETCD_FOUND := $(shell pkg-config --exists grpc && echo yes)
ETCD_PLUGIN := $(if $(ETCD_FOUND),$(B)/plugins/tensorcast-etcd.so)
ETCD_C := $(wildcard daemon/plugins/etcd/*.c)
ETCD_GEN := $(B)/gen/etcd/etcd.pb-c
# what the plugin takes of the daemon: values without state
ETCD_BASE_O := $(call obj,daemon/base/error.c daemon/base/memory.c daemon/base/text.c)

$(call obj,$(ETCD_C)): $(ETCD_GEN).h
$(B)/plugins/tensorcast-etcd.so: $(call obj,$(ETCD_C)) $(B)/obj/gen/etcd/etcd.pb-c.o $(ETCD_BASE_O) daemon/plugins/etcd/tensorcast-etcd.map
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,--version-script=daemon/plugins/etcd/tensorcast-etcd.map -Wl,-z,defs -o $@ $(filter %.o,$^) \
	  -lgrpc -lgpr -lprotobuf-c -lpthread
plugins: $(ETCD_PLUGIN) $(if $(ETCD_FOUND),$(B)/tests/membership_tool $(B)/tests/shifted_clock.so)
$(B)/tests/membership_tool: $(B)/obj/tests/e2e/membership_tool.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl
$(B)/tests/shifted_clock.so: tests/e2e/shifted_clock.c
	@mkdir -p $(@D)
	$(CC) -O2 -fPIC -shared -o $@ $< -ldl
