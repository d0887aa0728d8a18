/* Unary calls that are being worked on, which have no way to say why that takes long: Status tells it, to whoever waits for
 * them and to everybody. Loop thread only. */
#ifndef API_OPEN_CALLS_H
#define API_OPEN_CALLS_H

#include "load/load_result.h"
#include "rpc/rpc.h"

struct open_call {                  /* embedded in what a method keeps of a call; zeroed */
    struct open_call *next, **link; /* link NULL = not listed */
    const struct rpc_call *call;
    struct load_info (*describe)(void *data); /* its artifact, how far it is, what it waits for */
    void *data;
};

struct open_calls {
    struct open_call *first; /* the newest */
};

void open_calls_add(struct open_calls *calls, struct open_call *one);
void open_calls_remove(struct open_call *one); /* before the call is answered, or in the same turn of the loop */

#endif
