/*
 * pinserved run -- CMD: a private daemon for one command.
 */
#ifndef PINSERVE_PRIVATE_H
#define PINSERVE_PRIVATE_H

#include "config.h"

/* Serves on a socket of its own in a folder that only this user can enter, runs command with
 * PINSERVE_SOCKET set, passes signals on, and ends with it. Returns the command's exit status, 128
 * + the signal that ended it, 127 when it is not there, or 1. */
int private_run(const struct config *config, char **command);

#endif
