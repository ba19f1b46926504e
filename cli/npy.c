/* Format 1.0: magic, version, header size, then a Python dictionary padded so that the data is aligned to 64 bytes. */
#include "npy.h"

#include <inttypes.h>
#include <string.h>

int npy_write_header(FILE *out, int64_t n_rows, int64_t n_columns) {
    enum { PREFIX = 10, SIZE = 128 };
    unsigned char header[SIZE];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = SIZE - PREFIX;
    header[9] = 0;
    char dict[SIZE - PREFIX];
    const int size =
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", n_rows,
                 n_columns);
    memcpy(header + PREFIX, dict, (size_t)size);
    header[SIZE - 1] = '\n';
    return fwrite(header, 1, sizeof header, out) == sizeof header;
}
