/* The program of the tests of exactness. */
#ifndef TESTS_CHUNKATTN_EXACT_WORLDS_H
#define TESTS_CHUNKATTN_EXACT_WORLDS_H

#include "driver.h"

/* Run what the arguments say: see worlds.c. Returns the program's exit status. */
int worlds_main(int argc, char **argv, const backend *b);

#endif
