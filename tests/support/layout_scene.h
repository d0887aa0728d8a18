/* Artifacts in the memory store whose tensors lie in pieces. A file is given by what is stored in it: "w U8 2,3; s F32 4; x BF16"
 * (the last one without dimensions). Its bytes count up from `first_byte`. Everything aborts on failure. */
#ifndef SUPPORT_LAYOUT_SCENE_H
#define SUPPORT_LAYOUT_SCENE_H

#include "resolve/artifact.h"

/* info: the text of DCP_SHARDING_INFO, with its quotes as they are; NULL = none. */
void layout_put(const char *folder, const char *file, const char *stored, const char *info, unsigned char first_byte);
void layout_put_text(const char *folder, const char *file, const char *text);

/* "memory:FOLDER", without a cache; fails the test when it does not resolve. */
struct artifact *layout_resolve(const char *folder, unsigned flags);
/* That it is refused, with this code and all these words (NULL ends them) in the message. */
void layout_refuses(const char *folder, unsigned flags, enum error_code code, const char *const *words);
#define LAYOUT_REFUSES(folder, flags, code, ...)                                                                            \
    layout_refuses(folder, flags, code, (const char *const[]){__VA_ARGS__, NULL})

const struct tensor_record *layout_tensor(const struct artifact *artifact, const char *name);
/* "a@0,0+2,3 b@2,0+1,3": files and boxes of the listed pieces, "a" alone for all of a tensor. Static text. */
const char *layout_pieces(const struct artifact *artifact, const char *name);

#endif
