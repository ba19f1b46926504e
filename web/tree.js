// The panel of the tree.

/** Show the tree in an element. */
export function start_tree(element, { api }) {}
