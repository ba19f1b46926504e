/* cmocka, for tests in C++. A failed assertion leaves by longjmp, so what a test holds then is not freed. */
#ifndef TESTS_CHUNKATTN_CUDA_EMU_SUPPORT_H
#define TESTS_CHUNKATTN_CUDA_EMU_SUPPORT_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <fstream> /* before cmocka's macro fail */

extern "C" {
#include <cmocka.h>
}

#endif
