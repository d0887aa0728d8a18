/* A place that stores are uploaded to is its first user's, with what lies within its host folders, while a store goes there. */
#include "activations/upload_places.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { ANN = 70001, BOB = 70002, EVE = 70003 };
static struct upload_places *places;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    places = upload_places_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    upload_places_destroy(places);
    return 0;
}

/* NULL: refused. */
static struct upload_place *enter(const char *reference, uid_t owner, uid_t uid, bool is_shared)
{
    struct upload_place *place;
    const struct known_host known = {.uid = owner, .is_shared = is_shared};
    if (upload_places_enter(places, reference, &known, uid, &place, &error) == 0)
        return place;
    assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
    assert_string_equal(error.reason, "UPLOAD_PLACE_OF_ANOTHER_USER");
    assert_null(place);
    return NULL;
}

static void a_place_is_its_first_users_until_he_has_left_it(void **state)
{
    (void)state;
    struct upload_place *first = enter("gs://b/acts", ANN, ANN, false);
    assert_non_null(first);
    assert_ptr_equal(enter("gs://b/acts//", ANN, ANN, false), first);
    static const char *const taken[] = {"gs://b/acts", "gs://b/acts/", "gs://b/acts/host_003",
                                        "gs://b/acts/host_99999/deep"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        assert_null(enter(taken[i], BOB, BOB, false));
    static const char *const others[] = {"gs://b", "gs://b/acts2", "gs://b/acts/bobs", "s3://b/acts", "gs://b/acts/host_3"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_non_null(enter(others[i], BOB, BOB, false));
    assert_null(enter("gs://b/acts2", ANN, ANN, false));
    upload_places_leave(places, first);
    assert_null(enter("gs://b/acts", BOB, BOB, false));
    upload_places_leave(places, first);
    assert_non_null(enter("gs://b/acts", BOB, BOB, false));
    assert_null(enter("gs://b/acts", ANN, ANN, false));
    assert_non_null(enter("gs://b/acts2", BOB, BOB, false)); /* is still found when others have left */
    assert_null(enter("s3://b/acts", ANN, ANN, false));
}

static void members_share_theirs_and_root_goes_anywhere_without_taking_it(void **state)
{
    (void)state;
    assert_non_null(enter("gs://b/acts", ANN, ANN, true));
    assert_non_null(enter("gs://b/acts", BOB, BOB, true));
    assert_null(enter("gs://b/acts", EVE, EVE, false));
    assert_non_null(enter("gs://b/acts", 0, 0, false));
    assert_non_null(enter("gs://b/acts", geteuid(), geteuid(), false));
    assert_non_null(enter("gs://b/acts", BOB, BOB, true));
    assert_non_null(enter("gs://b/more", BOB, 0, false)); /* root opens his store */
    assert_null(enter("gs://b/more", ANN, ANN, false));
    assert_non_null(enter("gs://b/more", BOB, BOB, false));
}

/* A bucket and a key have 1024 characters each. */
static void what_is_no_place_is_nobodys(void **state)
{
    char *name = memory_alloc(2050);
    (void)state;
    memset(name, 'x', 2049);
    memcpy(name, "gs://b/", 7);
    assert_null(enter(name, ANN, ANN, false));
    name[2048] = '\0';
    assert_non_null(enter(name, ANN, ANN, false));
    assert_null(enter(name, BOB, BOB, false));
    struct upload_place *place;
    assert_int_equal(upload_places_enter(places, NULL, &(const struct known_host){.uid = ANN}, ANN, &place, &error), 0);
    assert_null(place);
    assert_null(upload_place_ref(NULL));
    upload_places_leave(places, NULL);
    free(name);
}

int main(void)
{
#define WITH_PLACES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_PLACES(a_place_is_its_first_users_until_he_has_left_it),
        WITH_PLACES(members_share_theirs_and_root_goes_anywhere_without_taking_it),
        WITH_PLACES(what_is_no_place_is_nobodys),
    };
    return cmocka_run_group_tests_name("upload_places", tests, NULL, NULL);
}
