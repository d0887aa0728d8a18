#include "api/open_calls.h"

void open_calls_add(struct open_calls *calls, struct open_call *one)
{
    one->next = calls->first;
    one->link = &calls->first;
    if (one->next)
        one->next->link = &one->next;
    calls->first = one;
}

void open_calls_remove(struct open_call *one)
{
    if (!one->link)
        return;
    *one->link = one->next;
    if (one->next)
        one->next->link = one->link;
    one->link = NULL;
}
