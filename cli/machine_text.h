/* Machine files that are part of the program (cmake/embed.cmake). SPDX-License-Identifier: MIT */
#ifndef CLI_MACHINE_TEXT_H
#define CLI_MACHINE_TEXT_H

extern const char text_machine_h200[]; /* docs/results/machine-h200.json */

#endif
