/* A program of somebody else's for CUDA: says whether the backend is linked, and what it finds. Ends with 0 if it is. */
#define CATTN_EXPERIMENTAL
#include <chunkattn_cuda.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    int32_t n = 0;
    cattn_error error = {0};
    if (cattn_cuda_device_count(&n, &error) == CATTN_OK)
        printf("%d devices\n", (int)n);
    else
        printf("%s\n", error.message);
    return strstr(error.message, "not linked") != NULL;
}
