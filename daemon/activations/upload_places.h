/* Whose the places are that stores are uploaded to, as long as a store is known that goes there.
 *
 * Users share the daemon's credentials, so a bucket cannot tell them apart: whoever was let into a place by uploads.prefixes could
 * put hosts of his own into the store that somebody else keeps there, or take the names of that one's segments. So a place is of
 * the owner of the first store that goes there, and what lies within one of its host folders is, too. Loop thread. */
#ifndef ACTIVATIONS_UPLOAD_PLACES_H
#define ACTIVATIONS_UPLOAD_PLACES_H

#include "activations/host_registry.h"

struct upload_place;
struct upload_places;

struct upload_places *upload_places_create(void);
void upload_places_destroy(struct upload_places *places); /* whoever is in them; accepts NULL */

/* For a store of that owner, asked by `uid`. PERMISSION_DENIED, UPLOAD_PLACE_OF_ANOTHER_USER; *place is NULL without an error where
 * the reference is none of a place, which whoever uploads to it is told. */
int upload_places_enter(struct upload_places *places, const char *reference, const struct known_host *owner, uid_t uid,
                        struct upload_place **place, struct error *error);
struct upload_place *upload_place_ref(struct upload_place *place);                  /* accepts NULL */
void upload_places_leave(struct upload_places *places, struct upload_place *place); /* accepts NULL */

#endif
