#include "activations/upload_places.h"

#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/redact.h"
#include "sink/sink.h"

enum { MAX_PLACE_CHARS = 2 * SINK_MAX_KEY_CHARS /* with its bucket; longer ones cannot be uploaded to */ };

struct upload_place {
    char *reference; /* without a slash at its end */
    uint32_t index;  /* in the list */
    uint32_t n_references;
    uid_t uid;
    bool is_shared; /* among members of limits.shared_group */
};

struct upload_places {
    struct map map; /* reference -> index */
    struct upload_place **list;
    size_t n, capacity;
};

struct upload_places *upload_places_create(void)
{
    struct upload_places *places = memory_alloc(sizeof *places);
    map_init(&places->map, 16);
    return places;
}

static void free_place(struct upload_place *place)
{
    free(place->reference);
    free(place);
}

void upload_places_destroy(struct upload_places *places)
{
    if (!places)
        return;
    for (size_t i = 0; i < places->n; i++)
        free_place(places->list[i]);
    free(places->list);
    map_fini(&places->map);
    free(places);
}

static struct upload_place *find_place(const struct upload_places *places, const char *reference, size_t length)
{
    uint32_t index = map_find(&places->map, reference, length);
    return index == MAP_NONE ? NULL : places->list[index];
}

static int check_place(const struct upload_place *place, const struct known_host *owner, struct error *error)
{
    char shown[REDACT_CHARS];
    if (!place || place->uid == owner->uid || (place->is_shared && owner->is_shared))
        return 0;
    redact(place->reference, shown, sizeof shown);
    return fail(error, ERROR_PERMISSION_DENIED, "UPLOAD_PLACE_OF_ANOTHER_USER",
                "a store of user %u is uploaded to %s: nobody else's is; name another place, or let users share theirs by "
                "limits.shared_group",
                (unsigned)place->uid, shown);
}

/* gs://b/acts/host_003/more lies within a host folder of gs://b/acts. */
static int check_around(const struct upload_places *places, const char *reference, const struct known_host *owner,
                        struct error *error)
{
    for (const char *slash = strchr(reference, '/'); slash; slash = strchr(slash + 1, '/')) {
        char name[ACTIVATION_NAME_CHARS] = "";
        size_t length = strcspn(slash + 1, "/");
        uint32_t host;
        if (length < sizeof name)
            memcpy(name, slash + 1, length);
        if (activation_parse_host(name, &host) &&
            check_place(find_place(places, reference, (size_t)(slash - reference)), owner, error) < 0)
            return -1;
    }
    return check_place(find_place(places, reference, strlen(reference)), owner, error);
}

/* Takes the reference. */
static struct upload_place *add_place(struct upload_places *places, char *reference, const struct known_host *owner)
{
    struct upload_place *place = memory_alloc(sizeof *place);
    *place = (struct upload_place){reference, (uint32_t)places->n, 0, owner->uid, owner->is_shared};
    ARRAY_RESERVE(places->list, places->n, places->capacity);
    places->list[places->n++] = place;
    map_add(&places->map, reference, strlen(reference), place->index);
    return place;
}

int upload_places_enter(struct upload_places *places, const char *reference, const struct known_host *owner, uid_t uid,
                        struct upload_place **entered, struct error *error)
{
    *entered = NULL;
    if (!reference || strlen(reference) > MAX_PLACE_CHARS)
        return 0;
    char *place_name = sink_join(reference, "");
    place_name[strlen(place_name) - 1] = '\0'; /* the slash */
    struct upload_place *place = find_place(places, place_name, strlen(place_name));
    int failed = quota_is_privileged(uid) ? 0 : check_around(places, place_name, owner, error);
    if (failed || place)
        free(place_name);
    else
        place = add_place(places, place_name, owner);
    if (!failed)
        *entered = upload_place_ref(place);
    return failed;
}

struct upload_place *upload_place_ref(struct upload_place *place)
{
    if (place)
        place->n_references++;
    return place;
}

/* The last one of the list takes its place. */
void upload_places_leave(struct upload_places *places, struct upload_place *place)
{
    if (!place || --place->n_references)
        return;
    struct upload_place *last = places->list[--places->n];
    map_remove(&places->map, place->reference, strlen(place->reference));
    if (last != place) {
        map_remove(&places->map, last->reference, strlen(last->reference));
        last->index = place->index;
        places->list[last->index] = last;
        map_add(&places->map, last->reference, strlen(last->reference), last->index);
    }
    free_place(place);
}
