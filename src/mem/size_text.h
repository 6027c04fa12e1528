/* Sizes as people write them: 4G, 300M, 1.5T; units are powers of 1024. */
#ifndef PLIM_MEM_SIZE_TEXT_H
#define PLIM_MEM_SIZE_TEXT_H

#include <plimsoll/status.h>
#include <stdint.h>

#define PLIM__SIZE_TEXT 24

/* "2 GiB", "1.42 GiB", "300 MiB", "512 B"; PLIM_LINE_NONE is "unlimited". Returns text_out. */
const char *plim__size_text(int64_t bytes, char text_out[PLIM__SIZE_TEXT]);

#endif
