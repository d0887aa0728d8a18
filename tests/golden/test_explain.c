/* Plans as text, compared with tests/golden/explain_*.txt. A changed plan or layout shows as a diff that a person reads:
 * TENSORCAST_REWRITE_GOLDEN=1 writes the files anew. Run from the repository's root. */
#include "tests/support/unit.h"

#include "plan/explain.h"
#include "tests/support/source_memory.h"
#include "tests/support/layout_scene.h"
#include "tests/support/mapping_fake.h"

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

struct scene {
    struct materialization_strategy strategy;
    struct load_spec spec;
    struct plan_facts facts;
};

static struct scene ordinary_scene(void)
{
    return (struct scene){
        .strategy = {.enable_local_batched_disk_load = true,
                     .allow_mixed_execution = true,
                     .owner_file_collective_group_assemble_timeout_ms = 15000},
        .facts = {.costs = &cost_defaults,
                  .source = {.filesystem = SOURCE_LOCAL, .filesystem_type = "ext4"},
                  .device = {.direct_segments = true},
                  .staging_budget_bytes = 64 * MIB},
    };
}

static void read_golden(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
}

static void write_golden(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* As source/change_detection.c would say it of such a file system. */
static void tell_detector(struct artifact *artifact, const struct source_caps *caps)
{
    bool has_lease = !caps->reads_are_requests && caps->filesystem == SOURCE_LOCAL;
    artifact->changes.by = caps->reads_are_requests ? CHANGES_BY_VERSION
                           : has_lease              ? CHANGES_BY_LEASE
                                                    : CHANGES_BY_TIMESTAMPS;
    artifact->changes.reason =
        caps->reads_are_requests || has_lease ? "" : "the file system may change a file without this host's kernel";
}

static void check_mapping(const struct mapping *mapping, struct scene *scene, const char *path)
{
    tell_detector((struct artifact *)mapping->artifact, &scene->facts.source);
    scene->facts.strategy = &scene->strategy;
    struct error error;
    struct plan *plan = plan_build(mapping, &scene->spec, &scene->facts, &error);
    assert_non_null(plan);
    char *text = explain_text(plan, mapping, &scene->facts);
    if (getenv("TENSORCAST_REWRITE_GOLDEN"))
        write_golden(path, text);
    char golden[16384];
    read_golden(path, golden, sizeof golden);
    assert_string_equal(text, golden);
    free(text);
    plan_destroy(plan);
}

static void check(struct mapping_fake *fake, struct scene *scene, const char *path)
{
    check_mapping(mapping_fake_finish(fake), scene, path);
    mapping_fake_destroy(fake);
}

/* One of four tensor-parallel ranks of four llama-like layers: row splits, column splits and whole norms. */
static struct mapping_fake *llama_rank(void)
{
    struct mapping_fake *fake = mapping_fake_create("disk:/models/llama", 2, 10000);
    for (uint32_t layer = 0; layer < 4; layer++) {
        uint32_t file = layer / 2;
        mapping_fake_add(fake, file, 2, 2, (uint64_t[]){6144, 4096}, (uint64_t[]){1536, 0}, (uint64_t[]){3072, 4096});
        mapping_fake_add(fake, file, 2, 2, (uint64_t[]){4096, 4096}, (uint64_t[]){0, 1024}, (uint64_t[]){4096, 2048});
        mapping_fake_add(fake, file, 2, 2, (uint64_t[]){4096, 14336}, (uint64_t[]){0, 3584}, (uint64_t[]){4096, 7168});
        mapping_fake_add(fake, file, 2, 1, (uint64_t[]){4096}, NULL, NULL);
    }
    return fake;
}

TEST(a_cold_rank_of_a_model)
{
    struct scene scene = ordinary_scene();
    check(llama_rank(), &scene, "tests/golden/explain_cold_rank.txt");
}

TEST(a_view_above_the_whole_budget_is_told_before_it_is_tried)
{
    for (uint64_t budget_bytes = 0; budget_bytes <= 2; budget_bytes++) { /* none, too little, enough */
        struct scene scene = ordinary_scene();
        struct mapping_fake *fake = llama_rank();
        const struct mapping *mapping = mapping_fake_finish(fake);
        struct error error;
        scene.facts.strategy = &scene.strategy;
        scene.facts.host_budget_bytes = budget_bytes ? mapping->replica_bytes + budget_bytes - 2 : 0;
        struct plan *plan = plan_build(mapping, &scene.spec, &scene.facts, &error);
        char *text = explain_text(plan, mapping, &scene.facts);
        assert_int_equal(strstr(text, "this view can never be loaded; load slices of it, or raise memory.host_budget\n") !=
                             NULL,
                         budget_bytes == 1);
        free(text);
        plan_destroy(plan);
        mapping_fake_destroy(fake);
    }
}

TEST(a_cached_rank_of_a_model)
{
    struct scene scene = ordinary_scene();
    scene.facts.cached_share = 1;
    check(llama_rank(), &scene, "tests/golden/explain_cached_rank.txt");
}

TEST(a_rank_of_a_model_in_a_store)
{
    struct scene scene = ordinary_scene();
    scene.facts.source = (struct source_caps){.filesystem = SOURCE_NETWORK,
                                              .filesystem_type = "gs",
                                              SOURCE_CAPS_OF_REQUESTS,
                                              .request_bytes = 16 * MIB,
                                              .parallel_requests = 32};
    scene.facts.extent_cache_bytes = GIB;
    check(llama_rank(), &scene, "tests/golden/explain_remote_rank.txt");
}

TEST(a_rank_of_a_model_in_a_store_that_hosts_share)
{
    struct scene scene = ordinary_scene();
    scene.facts.source = (struct source_caps){.filesystem = SOURCE_NETWORK,
                                              .filesystem_type = "gs",
                                              SOURCE_CAPS_OF_REQUESTS,
                                              .request_bytes = 16 * MIB,
                                              .parallel_requests = 32};
    scene.facts.extent_cache_bytes = GIB;
    scene.facts.hosts = (struct hosts_facts){.is_on = true, .alive = 4};
    check(llama_rank(), &scene, "tests/golden/explain_hosts.txt");
}

TEST(the_byte_gate_decides_otherwise)
{
    struct scene scene = ordinary_scene();
    scene.strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    scene.facts.cached_share = 0.374;
    check(llama_rank(), &scene, "tests/golden/explain_byte_gate.txt");
}

TEST(a_column_of_huge_rows)
{
    struct scene scene = ordinary_scene();
    struct mapping_fake *fake = mapping_fake_create("disk:/models/sparse", 1, 80);
    mapping_fake_add_columns(fake, 0, 4, 256 * MIB, 4096, 8192);
    check(fake, &scene, "tests/golden/explain_huge_rows.txt");
}

TEST(many_files_and_a_group_on_a_network_filesystem)
{
    struct scene scene = ordinary_scene();
    scene.strategy.enable_owner_file_collective = true;
    scene.strategy.owner_file_collective_batch_bytes = 512 * MIB;
    scene.strategy.owner_file_collective_max_inflight_batches = 1;
    scene.strategy.owner_file_collective_peak_bytes_budget = 8 * GIB;
    scene.strategy.owner_file_collective_max_owner_skew_ratio = 1.5;
    scene.strategy.enable_local_batched_disk_load = false;
    scene.spec.topology = (struct execution_topology){
        .has_group = true, .group_id = "g", .world_size = 8, .source_locality = LOCALITY_SHARED_SOURCE};
    scene.facts.source = (struct source_caps){.filesystem = SOURCE_NETWORK, .filesystem_type = "nfs"};
    struct mapping_fake *fake = mapping_fake_create("disk:/mnt/big", 30, 8);
    for (uint32_t file = 0; file < 30; file++)
        mapping_fake_add_bytes(fake, file, 4 * GIB + file);
    scene.facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=3,7");
    check(fake, &scene, "tests/golden/explain_many_files.txt");
}

/* Four ranks of a model of two files: columns and rows are cut, the norm is not. */
static struct mapping_fake *group_rank(uint64_t rank)
{
    struct mapping_fake *fake = mapping_fake_create("disk:/mnt/group", 2, 80);
    for (uint32_t file = 0; file < 2; file++)
        for (int layer = 0; layer < 4; layer++) {
            mapping_fake_add(fake, file, 1, 2, (uint64_t[]){8192, 8192}, (uint64_t[]){rank * 2048, 0},
                             (uint64_t[]){rank * 2048 + 2048, 8192});
            mapping_fake_add_columns(fake, file, 8192, 8192, rank * 2048, rank * 2048 + 2048);
            mapping_fake_add_bytes(fake, file, 16 * MIB);
        }
    return fake;
}

TEST(a_group_of_four_ranks)
{
    struct scene scene = ordinary_scene();
    struct mapping_fake *fakes[4];
    struct collective_rank ranks[4];
    const uint32_t leaders[4] = {0, 1, 2, 3};
    scene.strategy.enable_owner_file_collective = true;
    scene.strategy.owner_file_collective_batch_bytes = 128 * MIB;
    scene.strategy.owner_file_collective_dim1_staging_bytes = 64 * MIB;
    scene.strategy.owner_file_collective_peak_bytes_budget = 8 * GIB;
    scene.strategy.owner_file_collective_max_owner_skew_ratio = 1.5;
    scene.spec.topology = (struct execution_topology){
        .has_group = true, .group_id = "g", .rank = 1, .world_size = 4, .source_locality = LOCALITY_SHARED_SOURCE};
    for (uint32_t rank = 0; rank < 4; rank++) {
        fakes[rank] = group_rank(rank);
        ranks[rank] = (struct collective_rank){mapping_fake_finish(fakes[rank]), rank, 1};
    }
    const struct collective_facts facts = {
        .strategy = &scene.strategy, .group_id = "g", .world_size = 4, .leaders = leaders, .staging_budget_bytes = 64 * MIB};
    static const struct transport_ops over_links = {.name = "links", .caps = {.device_links = true, .stages_batches = true}};
    const struct transport_ops *const list[] = {&transport_loopback, &over_links};
    const struct transport_supply supply = {.list = list, .n = 2};
    struct error error;
    scene.facts.group = collective_plan_build(ranks, 4, &facts, &error);
    const struct transport_demand demand = {.unique_bytes = scene.facts.group->numbers.unique_source_bytes,
                                            .landed_bytes = scene.facts.group->numbers.landed_bytes,
                                            .staged_bytes = scene.facts.group->numbers.staged_bytes,
                                            .peak_budget_bytes = 8 * GIB,
                                            .n_memories = 4};
    const struct transport_rates rates = transport_choice_rates(&scene.facts);
    const struct transport_choice choice = transport_choice_make(&supply, &demand, &rates);
    scene.facts.transport = &choice;
    check(group_rank(1), &scene, "tests/golden/explain_group.txt");
    collective_plan_unref(scene.facts.group);
    for (uint32_t rank = 0; rank < 4; rank++)
        mapping_fake_destroy(fakes[rank]);
}

TEST(a_view_without_bytes)
{
    struct scene scene = ordinary_scene();
    struct mapping_fake *fake = mapping_fake_create("disk:/models/\x1b[31m", 1, 8);
    mapping_fake_add(fake, 0, 4, 2, (uint64_t[]){3, 0}, NULL, NULL);
    check(fake, &scene, "tests/golden/explain_nothing.txt");
}

/* Of four ranks that saved q by rows and o by columns, what one of two ranks loads. */
TEST(a_rank_across_shards_of_a_distributed_checkpoint)
{
    static const struct slice q[] = {{512, 1024}, {0, INT64_MAX}}, o[] = {{0, INT64_MAX}, {512, 1024}};
    static const struct view_item items[] = {{"q", 1, 2, q}, {"o", 1, 2, o}, {"norm", 4, 0, NULL}};
    const struct view_spec view = {.items = items, .n_items = 3, .align_bytes = 64};
    struct scene scene = ordinary_scene();
    struct error error;
    for (unsigned rank = 0; rank < 4; rank++) {
        char name[64], info[200];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", rank + 1);
        snprintf(info, sizeof info, "{\"q\": {\"saved_offsets\": [%u, 0]}, \"o\": {\"saved_offsets\": [0, %u]}%s}",
                 256 * rank, 256 * rank, rank ? "" : ", \"norm\": {\"saved_offsets\": [0]}");
        layout_put("shards", name, rank ? "q BF16 256,512; o BF16 512,256" : "q BF16 256,512; o BF16 512,256; norm F32 512",
                   info, 0);
    }
    struct artifact *artifact = layout_resolve("shards", 0);
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    assert_non_null(mapping);
    check_mapping(mapping, &scene, "tests/golden/explain_shards.txt");
    mapping_destroy(mapping);
    artifact_unref(artifact);
    source_memory_clear();
}

/* The shared norm comes from the file that the slice is in. */
TEST(a_slice_of_a_topology_with_a_shared_tensor)
{
    static const struct slice w[] = {{600, 700}, {0, INT64_MAX}};
    static const struct view_item items[] = {{"norm", 4, 0, NULL}, {"w", 1, 2, w}};
    const struct view_spec view = {.items = items, .n_items = 2, .align_bytes = 64};
    struct scene scene = ordinary_scene();
    struct error error;
    layout_put_text(
        "topology", "topology.json",
        "{\"tensors\":{\"norm\":{\"type\":\"Shared\",\"shape\":[512],\"dtype\":\"F32\"},\"w\":{\"type\":\"Distributed\","
        "\"shape\":[1024,512],\"dtype\":\"BF16\",\"chunks\":[{\"offsets\":[0,0],\"shape\":[512,512],\"filename_index\":0},"
        "{\"offsets\":[512,0],\"shape\":[512,512],\"filename_index\":1}]}},"
        "\"filenames\":[\"rank0.safetensors\",\"rank1.safetensors\"],\"world_size\":2}");
    layout_put("topology", "rank0.safetensors", "norm F32 512; w BF16 512,512", NULL, 0);
    layout_put("topology", "rank1.safetensors", "norm F32 512; w BF16 512,512", NULL, 0);
    struct artifact *artifact = layout_resolve("topology", 0);
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    assert_non_null(mapping);
    check_mapping(mapping, &scene, "tests/golden/explain_topology.txt");
    mapping_destroy(mapping);
    artifact_unref(artifact);
    source_memory_clear();
}
