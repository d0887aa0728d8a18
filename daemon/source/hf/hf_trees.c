/* A ring of trees by the URL of their first page, which names endpoint, repository, commit and folder. */
#include "source/hf/hf_trees.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

struct tree {
    char *url; /* NULL = empty */
    struct object *objects;
    size_t n_objects;
};

struct hf_trees {
    pthread_mutex_t lock;
    struct tree trees[HF_TREES_MAX];
    size_t next;      /* to be replaced */
    uint64_t away_ns; /* atomic: when the hub could not be reached last; 0 = it could */
};

static void clear_tree(struct tree *tree)
{
    for (size_t i = 0; i < tree->n_objects; i++)
        object_clear(&tree->objects[i]);
    free(tree->objects);
    free(tree->url);
    *tree = (struct tree){0};
}

void *hf_trees_create(struct stores *stores)
{
    (void)stores;
    struct hf_trees *trees = memory_alloc(sizeof *trees);
    pthread_mutex_init(&trees->lock, NULL);
    return trees;
}

void hf_trees_destroy(void *kept)
{
    struct hf_trees *trees = kept;
    for (size_t i = 0; i < HF_TREES_MAX; i++)
        clear_tree(&trees->trees[i]);
    pthread_mutex_destroy(&trees->lock);
    free(trees);
}

/* What a tree tells of an object, as texts of its own. */
static struct object copy_object(const struct object *object)
{
    struct object copy = {.name = memory_copy_text(object->name),
                          .size_bytes = object->size_bytes,
                          .pin = memory_copy_text(object->pin),
                          .version = memory_copy_text(object->version)};
    memcpy(copy.checksums, object->checksums, sizeof copy.checksums);
    return copy;
}

/* Under the lock. */
static const struct tree *find_tree(const struct hf_trees *trees, const char *url)
{
    for (size_t i = 0; i < HF_TREES_MAX; i++) {
        if (trees->trees[i].url && strcmp(trees->trees[i].url, url) == 0)
            return &trees->trees[i];
    }
    return NULL;
}

int hf_trees_find(struct hf_trees *trees, const char *url, struct object_source *source, struct error *error)
{
    int failed = 0;
    pthread_mutex_lock(&trees->lock);
    const struct tree *tree = find_tree(trees, url);
    for (size_t i = 0; tree && i < tree->n_objects && !failed; i++) {
        struct object copy = copy_object(&tree->objects[i]);
        failed = object_source_add(source, &copy, error);
    }
    pthread_mutex_unlock(&trees->lock);
    return failed ? -1 : tree != NULL;
}

void hf_trees_add(struct hf_trees *trees, const char *url, const struct object_source *source)
{
    if (source->n_objects > HF_TREES_MAX_OBJECTS)
        return;
    pthread_mutex_lock(&trees->lock);
    if (!find_tree(trees, url)) {
        clear_tree(&trees->trees[trees->next]);
        struct tree tree = {.url = memory_copy_text(url),
                            .objects = memory_alloc_array(source->n_objects, sizeof *tree.objects),
                            .n_objects = source->n_objects};
        for (size_t i = 0; i < tree.n_objects; i++)
            tree.objects[i] = copy_object(source->objects[i]);
        trees->trees[trees->next] = tree;
        trees->next = (trees->next + 1) % HF_TREES_MAX;
    }
    pthread_mutex_unlock(&trees->lock);
}

bool hf_trees_is_hub_away(const struct hf_trees *trees)
{
    uint64_t away_ns = __atomic_load_n(&trees->away_ns, __ATOMIC_RELAXED);
    return away_ns && clock_now_ns() - away_ns < HF_HUB_AWAY_S * UINT64_C(1000) * NS_PER_MS;
}

void hf_trees_set_hub_away(struct hf_trees *trees, bool is_away)
{
    __atomic_store_n(&trees->away_ns, is_away ? clock_now_ns() : 0, __ATOMIC_RELAXED);
}
