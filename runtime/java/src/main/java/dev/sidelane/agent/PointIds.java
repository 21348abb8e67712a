// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import dev.sidelane.Signals;
import java.util.HashMap;
import java.util.Map;

/**
 * Numbers of points, from 1 on. A point is named in the file of signals when it gets its number,
 * since an observer may start at any time. It keeps its number when its class is transformed again.
 */
final class PointIds {
    private final String tag;
    private final Map<String, Integer> ids = new HashMap<>();

    PointIds(String tag) {
        this.tag = tag;
    }

    synchronized int of(Point point) {
        String name = point.name();
        Integer known = ids.get(name);
        if (known != null) {
            return known;
        }
        int id = ids.size() + 1;
        ids.put(name, id);
        Signals.name(tag, id, name);
        return id;
    }
}
