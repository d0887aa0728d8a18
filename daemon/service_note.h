/* What a service manager shows of us: "2 loads, 12.0 GiB of 25.0 GiB in use". Sent once a second at most, and only when it has
 * changed. Loop thread. */
#ifndef SERVICE_NOTE_H
#define SERVICE_NOTE_H

#include "api/api.h"

struct service_note;

/* NULL where there is no service manager. The first note is sent at once. */
struct service_note *service_note_create(const struct api *api);
void service_note_destroy(struct service_note *note); /* accepts NULL */

#endif
